"""The data folder: made, and locked so that two meshes never share one."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Self

from streamway.runtime.process import StartError

MESH_FILE = "mesh.json"


class DataDir:
    """Holds the lock of a data folder until `release`. The kernel drops it when the process dies."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def take(cls, path: Path) -> Self:
        """Makes the folder and locks it. Raises StartError when another mesh runs on it."""
        path = path.expanduser().absolute()
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            raise StartError(
                f"cannot use the data folder {path} ({problem.strerror}); give another --data-dir"
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            raise StartError(
                f"a mesh already runs on the data folder {path} (process {holder}); stop it, or give another --data-dir"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        return cls(path, lock)

    @property
    def mesh_file(self) -> Path:
        """Where `streamway status` and `chat` find the running mesh."""
        return self.path / MESH_FILE

    def release(self) -> None:
        """Drops the lock and what told others of the mesh."""
        self.mesh_file.unlink(missing_ok=True)
        os.close(self._lock)
