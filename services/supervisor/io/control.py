"""A unix socket by which edges of this mesh have workers killed and paused, for the console's page of failures.

    GET  /workers            {"workers": [{"name": "adapter-0", "state": "running"}, …]}
    POST /workers/adapter-0  {"deed": "kill"}          the same list; 404, 409 where it does not follow

Whoever may write to the socket may do this: it is in a folder of this user alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec
from aiohttp import web

from services.supervisor.core.failures import PAUSE_S, Deed, State, follows

_MOST_BYTES: Final = 1024
_SIGNALS: Final = {Deed.KILL: signal.SIGKILL, Deed.PAUSE: signal.SIGSTOP, Deed.GO_ON: signal.SIGCONT}


class Victim(Protocol):
    """A process that is kept running. `pid` is 0 while there is none."""

    @property
    def pid(self) -> int:
        """Of its present life."""
        ...

    @property
    def running(self) -> bool:
        """It was started and has not ended."""
        ...


class _Order(msgspec.Struct):
    deed: Deed


class Control:
    """Serves the socket. `workers` by name, asked each time; `note` gets a line for each deed."""

    def __init__(self, path: Path, workers: Callable[[], Mapping[str, Victim]], note: Callable[[str], None]) -> None:
        self.path = path
        self._workers = workers
        self._note = note
        # Paused lives, each with the timer that ends that.
        self._paused: dict[int, asyncio.TimerHandle] = {}
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listens."""
        app = web.Application(client_max_size=_MOST_BYTES)
        app.router.add_get("/workers", self._list)
        app.router.add_post("/workers/{name}", self._do)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        self.path.unlink(missing_ok=True)
        await web.UnixSite(self._runner, str(self.path)).start()
        self.path.chmod(0o600)

    async def close(self) -> None:
        """Lets go on what is paused, and stops listening."""
        for pid in list(self._paused):
            self._go_on(pid)
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
            self.path.unlink(missing_ok=True)

    async def _list(self, _: web.Request) -> web.Response:
        return self._told()

    async def _do(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        victim = self._workers().get(name)
        if victim is None:
            raise web.HTTPNotFound(text=f"there is no worker {name[:64]!r}")
        try:
            deed = msgspec.json.decode(await request.read(), type=_Order).deed
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise web.HTTPBadRequest(text="send {'deed': 'kill', 'pause' or 'go_on'}") from None
        state = self._state(victim)
        if not follows(state, deed):
            raise web.HTTPConflict(text=f"{name} is {state}")
        self._perform(deed, victim.pid)
        self._note(f"{name}: {deed.replace('_', ' ')}, from the console")
        return self._told()

    def _perform(self, deed: Deed, pid: int) -> None:
        if deed is Deed.GO_ON:
            self._go_on(pid)
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, _SIGNALS[deed])
        if deed is Deed.PAUSE:
            self._paused[pid] = asyncio.get_running_loop().call_later(PAUSE_S, self._go_on, pid)

    def _go_on(self, pid: int) -> None:
        timer = self._paused.pop(pid, None)
        if timer is None:
            return
        timer.cancel()
        # A life that ended meanwhile has left its number to others.
        if any(victim.pid == pid and victim.running for victim in self._workers().values()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _state(self, victim: Victim) -> State:
        if not victim.running or not victim.pid:
            return State.DOWN
        return State.PAUSED if victim.pid in self._paused else State.RUNNING

    def _told(self) -> web.Response:
        rows = [{"name": name, "state": self._state(victim)} for name, victim in sorted(self._workers().items())]
        return web.Response(body=msgspec.json.encode({"workers": rows}), content_type="application/json")
