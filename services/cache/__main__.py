"""Runs the cache: settings → logging → service."""

from __future__ import annotations

import sys

from services.cache.settings import CacheSettings
from streamway.config import SharedSettings, load
from streamway.runtime.process import StartError, run
from streamway.telemetry import logging


def main() -> None:
    """Exit codes: 0 after a drain, 2 when the start was refused, 1 when a part failed."""
    try:
        settings, shared = load(CacheSettings, SharedSettings)
    except StartError as problem:
        print(f"cannot start: {problem}", file=sys.stderr)  # noqa: T201 - before there is a log
        sys.exit(2)
    # Not before the settings are right: a wrong one is told at once, and `--print-config` costs no imports.
    from services.cache.app import CacheApp

    logging.configure("cache", shared.log_level, shared.log_format)
    run(lambda: CacheApp(settings, shared))


if __name__ == "__main__":
    main()
