"""`streamway tune`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from services.supervisor.commands.arguments import given
from streamway.runtime.process import StartError


def look_for(options: Mapping[str, str | int | float | Path]) -> None:
    """Runs the search as a process of its own and exits with its code: it has the cores of several services, which none of them
    has. Raises StartError where the simulator or the search is not installed."""
    if importlib.util.find_spec("benchmarks") is None:
        raise StartError(
            "the simulator is part of the checkout and not of the package; run this where `make setup` has run"
        )
    if importlib.util.find_spec("pymoo") is None:
        raise StartError("the search is not installed; pip install 'streamway[tune]'")
    command = [sys.executable, "-m", "benchmarks.tune", *given(options)]
    sys.exit(subprocess.run(command, check=False).returncode)  # noqa: S603 — our own program and options that were parsed
