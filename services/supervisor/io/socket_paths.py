"""Where the unix sockets of a mesh are."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

# The kernel takes 107 bytes for the path of a unix socket.
_LONGEST: Final = 100


def socket_path(data_dir: Path, name: str) -> Path:
    """In the data folder, or in a private temporary one when that path is too long for a socket."""
    path = data_dir / name
    if len(str(path).encode()) <= _LONGEST:
        return path
    return Path(tempfile.mkdtemp(prefix="streamway-")) / name
