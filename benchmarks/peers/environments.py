"""An environment for each peer, since their dependencies are not ours."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

# Name of the peer to what pip is asked for.
PACKAGES: Final = {
    "vllm-router": "vllm-router==0.1.17",
    "sglang-router": "sglang-router==0.3.2",
    "litellm": "litellm[proxy]==1.108",
}
_LIMIT_S: Final = 900.0


def environment(folder: Path, peer: str) -> Path | None:
    """The Python of a peer's environment below `folder`, made when it is not there; None where it can't be installed."""
    home = folder / peer
    python, mark = home / "bin" / "python", home / ".installed"
    wanted = PACKAGES[peer]
    if mark.exists() and mark.read_text(encoding="utf-8") == wanted:
        return python
    print(f"installing {wanted} into {home} …", file=sys.stderr, flush=True)
    venv.create(home, with_pip=True, clear=True)
    command = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", wanted]
    try:
        subprocess.run(command, check=True, timeout=_LIMIT_S)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as problem:
        print(f"{peer} is left out: {wanted} does not install here ({problem})", file=sys.stderr, flush=True)
        return None
    mark.write_text(wanted, encoding="utf-8")
    return python
