"""At most one engine a GPU, of all workers on a machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from streamway.runtime.process import StartError

_ODD = re.compile(r"[^0-9A-Za-z-]")


class GPUClaim:
    """Locks that the kernel releases when this process ends, however it does."""

    def __init__(self) -> None:
        self._files: list[int] = []

    @classmethod
    def of(cls, gpus: Iterable[str], folder: Path | None = None) -> Self:
        """Claims all of them. Raises StartError where another worker has one."""
        made = cls()
        for gpu in gpus:
            path = (folder or Path(tempfile.gettempdir())) / f"streamway-{_ODD.sub('-', gpu)}.lock"
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            made._files.append(file)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                made.release()
                raise StartError(
                    f"the GPU {gpu} has another worker's engine; give each worker its own by CUDA_VISIBLE_DEVICES"
                ) from None
        return made

    def release(self) -> None:
        """Others may have them."""
        for file in self._files:
            with contextlib.suppress(OSError):
                os.close(file)
        self._files.clear()
