"""Tells workers which sessions will come to them, so that they can fill their KV ahead.

sw:arrivals:{worker}  sorted set   [tenant, model, session] as JSON, by the Unix ms it was seen at; the worker takes them out

Hints, and nothing more: whatever is lost or late is computed with the turn itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from services.router.core.moves import MOST_TOLD, Home, Moves
from services.router.core.strategy import Strategy
from services.router.io.registry import Registry
from streamway.runtime.clock import Clock
from streamway.valkey import keys
from streamway.valkey.link import Link
from streamway.valkey.session import Reply

_encode: Final[Callable[[list[str]], bytes]] = msgspec.json.Encoder().encode


class Arrivals:
    """Looks for sessions of new workers as often as the registry looks for workers."""

    def __init__(
        self, link: Link, registry: Registry, strategy: Strategy, clock: Clock, every_s: float, ttl_s: float
    ) -> None:
        self._link = link
        self._registry = registry
        self._clock = clock
        self._every_s = every_s
        self._ttl_ms = int(ttl_s * 1000)
        self._moves = Moves(lambda most: strategy.homes(registry.pool, most))

    async def run(self) -> None:
        """Tells until cancelled."""
        while True:
            await asyncio.sleep(self._every_s)
            ready = [worker for worker in self._registry.all() if worker.state == "ready"]
            self._moves.seen({worker.id: worker.began_ms for worker in ready})
            self._tell(self._moves.step())

    def _tell(self, homes: list[Home]) -> None:
        link = self._link.current
        if link is None:
            return
        now_ms = int(self._clock.unix() * 1000)
        for number, home in enumerate(homes):
            key = keys.arrivals(home.worker)
            # Sessions of the latest turns come first, and are the likeliest to be asked for next.
            link.send(("ZADD", key, now_ms - number, _encode([home.tenant, home.model, home.session])), _ignore)
        for key in {keys.arrivals(home.worker) for home in homes}:
            link.send(("ZREMRANGEBYRANK", key, 0, -MOST_TOLD - 1), _ignore)
            link.send(("PEXPIRE", key, self._ttl_ms), _ignore)


def _ignore(_: Reply) -> None:
    """For replies that change nothing."""
