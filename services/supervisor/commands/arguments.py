"""Options of the command line as arguments for `config.load`, so that environment and file count where an option is absent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def given(options: Mapping[str, str | int | float | Path | None]) -> list[str]:
    """`--name=value` for each option that was given."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in options.items() if value is not None]
