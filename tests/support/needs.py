"""What a test needs beyond the Python packages: left out with one line where it is missing, which is an error where CI=true
unless it is opt-in."""

from __future__ import annotations

import shutil
from typing import Final

import pytest

LEFT_OUT: Final = "left out: "
# What nobody has to have, CI neither: left out with one line.
OPT_IN: Final = "opt-in: "


def program(*names: str, package: str) -> str:
    """The path of the first of these programs that is installed; leaves the test out when none is."""
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    pytest.skip(f"{LEFT_OUT}{names[0]} is not installed; as root: apt-get install {package}")
