"""An environment for what is compared with the mesh, since its dependencies are not ours."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_LIMIT_S: Final = 900.0


def environment(home: Path, packages: Sequence[str]) -> Path:
    """The Python of the environment in the folder `home`, made when it is not there or has others. Raises SubprocessError where
    they can't be installed."""
    python, mark = home / "bin" / "python", home / ".installed"
    wanted = ", ".join(packages)
    if mark.exists() and mark.read_text(encoding="utf-8") == wanted:
        return python
    print(f"installing {wanted} into {home} …", file=sys.stderr, flush=True)
    venv.create(home, with_pip=True, clear=True)
    command = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", *packages]
    subprocess.run(command, check=True, timeout=_LIMIT_S)
    mark.write_text(wanted, encoding="utf-8")
    return python
