"""WebSockets that only answer heartbeats: opened over `plan.ramp_s`, held for `plan.tokens` seconds, closed."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from benchmarks.clients.plan import Plan, Tally
from benchmarks.clients.websocket import Frames


class _Idle(Frames):
    def __init__(self, plan: Plan, tally: Tally) -> None:
        super().__init__(plan)
        self._tally = tally
        self._over = False

    def open(self) -> None:
        self._tally.finished += 1

    def ended(self, error: str) -> None:
        if not self._over:
            self._over = True
            self._tally.error(error)

    def close(self) -> None:
        self._over = True
        super().close()


async def run(plan: Plan, tally: Tally) -> None:
    """Runs the whole plan. An idle socket that ends before it is closed is an error."""
    url = urlsplit(plan.target)
    host, port = url.hostname or "127.0.0.1", url.port or 80
    loop = asyncio.get_running_loop()
    sockets: list[_Idle] = []
    for number in range(plan.streams):
        try:
            _, socket = await loop.create_connection(
                lambda: _Idle(plan, tally), host, port, local_addr=plan.local_address(number)
            )
        except OSError as problem:
            tally.error(type(problem).__name__)
        else:
            sockets.append(socket)
        if number % 20 == 19:
            await asyncio.sleep(20 * plan.ramp_s / plan.streams)
    await asyncio.sleep(plan.tokens)
    for socket in sockets:
        socket.close()
