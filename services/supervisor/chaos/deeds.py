"""What is done to a process: at once, and put back when its time is over."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Final

from services.supervisor.chaos import sockets
from services.supervisor.chaos.mesh import ChaosMesh
from services.supervisor.core.rounds import Round

_AWAY: Final = "valkey.away"


class NotPossible(Exception):
    """This machine, or this mesh, does not let it be done. The message says why."""


class Mischief:
    """One deed to one process. Whoever made it calls `put_back`, whatever happens. Raises NotPossible where there is none."""

    def __init__(self, mesh: ChaosMesh, round_: Round, name: str) -> None:
        self._mesh = mesh
        self._round = round_
        self._pid = mesh.pid(name)
        if not self._pid:  # to the kernel 0 means everybody in this process group
            raise NotPossible(f"{name} does not run")
        self._done = False
        # What must have another pid before the mesh is whole again.
        self.killed = {name: self._pid} if round_.deed in ("kill", "stop", "empty") else {}
        self.note = ""
        # When the process, or the next one, was let go on.
        self.undone_at: float | None = None

    def do(self) -> None:
        """Does it. Raises NotPossible."""
        try:
            self._do()
        except ProcessLookupError:
            raise NotPossible(f"process {self._pid} has ended by itself") from None

    def _do(self) -> None:
        match self._round.deed:
            case "kill":
                os.kill(self._pid, signal.SIGKILL)
            case "pause":
                os.kill(self._pid, signal.SIGSTOP)
            case "cut":
                try:
                    self.note = f"{sockets.cut(self._pid)} connections"
                except OSError as problem:
                    raise NotPossible(f"this user may not cut connections of a process here ({problem})") from None
            case "stop" | "empty":
                # Without its folder the store can't be started again: the supervisor goes on trying.
                store = self._store()
                store.rename(store.with_name(_AWAY))
                self._done = True
                os.kill(self._pid, signal.SIGKILL)
        self._done = True

    async def last(self) -> None:
        """Leaves it like that for as long as the round says, then puts it back."""
        try:
            await asyncio.sleep(self._round.seconds)
        finally:
            self.put_back()

    def put_back(self) -> None:
        """Lets the process, or the next one, go on. The second time it does nothing."""
        if not self._done or self.undone_at is not None:
            return
        self.undone_at = time.monotonic()
        match self._round.deed:
            case "pause":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGCONT)
            case "stop":
                self._store().with_name(_AWAY).rename(self._store())
            case "empty":
                self._store().mkdir(mode=0o700)
                shutil.rmtree(self._store().with_name(_AWAY))

    def _store(self) -> Path:
        store = self._mesh.store
        if store is None:
            raise NotPossible("the mesh uses a Valkey of somebody else's")
        return store
