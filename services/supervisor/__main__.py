"""Entry point of the `streamway` command."""

from __future__ import annotations

from services.supervisor.cli import run


def main() -> None:
    """Runs the command line. Exit codes: 0 done, 1 failed, 2 refused with one line that says what to do."""
    run()


if __name__ == "__main__":
    main()
