"""What is done to a process. Each deed is done at once by `do` and undone by `undo`."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Final

from services.supervisor.chaos import sockets
from services.supervisor.chaos.mesh import ChaosMesh
from services.supervisor.core.rounds import Round
from streamway.runtime.process import StartError

_AWAY: Final = "valkey.away"


class Mischief:
    """One deed to one process."""

    def __init__(self, mesh: ChaosMesh, round_: Round, name: str) -> None:
        self._mesh = mesh
        self._round = round_
        self._pid = mesh.pid(name)
        # What must have another pid before the mesh is whole again.
        self.killed = {name: self._pid} if round_.deed in ("kill", "stop", "empty") else {}
        self.note = ""
        # When the process, or the next one, was let go on.
        self.undone_at: float | None = None

    def do(self) -> None:
        """Does it. Raises StartError where this machine does not permit it."""
        match self._round.deed:
            case "kill":
                os.kill(self._pid, signal.SIGKILL)
            case "pause":
                os.kill(self._pid, signal.SIGSTOP)
            case "cut":
                try:
                    self.note = f"{sockets.cut(self._pid)} connections"
                except OSError as problem:
                    raise StartError(
                        f"connections of process {self._pid} can't be cut here ({problem}); run as root, or use --only"
                    ) from None
            case "stop" | "empty":
                # Without its folder the store can't be started again: the supervisor goes on trying.
                store = self._store()
                store.rename(store.with_name(_AWAY))
                os.kill(self._pid, signal.SIGKILL)

    async def undo(self) -> None:
        """Waits until it is time, and lets the process, or the next one, go on."""
        try:
            await asyncio.sleep(self._round.seconds)
        finally:
            self.undone_at = time.monotonic()
            match self._round.deed:
                case "pause":
                    os.kill(self._pid, signal.SIGCONT)
                case "stop":
                    self._store().with_name(_AWAY).rename(self._store())
                case "empty":
                    self._store().mkdir(mode=0o700)
                    shutil.rmtree(self._store().with_name(_AWAY))

    def _store(self) -> Path:
        store = self._mesh.store
        if store is None:
            raise StartError("this mesh uses a Valkey of somebody else's: leave it out with --only")
        return store
