"""System prompts that are asked for most, counted by all workers together.

    sw:prompted:{model}:<window>         sorted set: tenant → requests
    sw:prompts:{tenant/model}:<window>   sorted set: context → requests

The text is its own name: what is dropped from the set leaves nothing behind. A tenant has a set of its own, so nobody's many
prompts push out another's.
"""

from __future__ import annotations

from typing import Any, Final

from services.inference_adapter.core.popular import WINDOW_S, Popular, hottest, windows
from streamway.runtime.clock import Clock
from streamway.valkey import keys
from streamway.valkey.connection import Valkey

# A longer system prompt is not counted.
MOST_BYTES: Final = 16 * 1024
_MOST_TENANTS: Final = 64
_MOST_PROMPTS: Final = 8  # of a tenant and model in a window
_ASKED_TENANTS: Final = 16
_TTL_MS: Final = 2 * WINDOW_S * 1000


class Prompts:
    """This worker's counts, and everybody's."""

    def __init__(self, valkey: Valkey, clock: Clock) -> None:
        self._valkey = valkey
        self._clock = clock
        self._popular = Popular()

    def seen(self, tenant: str, model: str, context: bytes) -> None:
        """A request began with it."""
        if len(context) <= MOST_BYTES:
            self._popular.seen(tenant, model, context)

    async def write(self) -> None:
        """Adds what has been counted since. Raises RedisError or OSError: those counts are lost, others follow."""
        told = self._popular.take()
        if not told:
            return
        window, _ = windows(self._clock.unix())
        async with self._valkey.pipeline(transaction=False) as pipe:
            for (tenant, model, context), count in told.items():
                for key, member, most in (
                    (keys.prompts(tenant, model, window), context, _MOST_PROMPTS),
                    (keys.prompted(model, window), tenant.encode(), _MOST_TENANTS),
                ):
                    pipe.zincrby(key, count, member)
                    pipe.zremrangebyrank(key, 0, -most - 1)
                    pipe.pexpire(key, _TTL_MS)
            await pipe.execute()

    async def hottest(self, model: str, most: int) -> list[tuple[str, bytes]]:
        """Tenants and contexts of the last windows, most asked for first. Raises RedisError or OSError."""
        both = windows(self._clock.unix())
        tenants: dict[bytes, float] = {}
        for window in both:
            for tenant, count in await self._top(keys.prompted(model, window), _ASKED_TENANTS):
                tenants[tenant] = tenants.get(tenant, 0.0) + count
        chosen = sorted(tenants, key=lambda tenant: (-tenants[tenant], tenant))[:_ASKED_TENANTS]
        found = []
        for tenant in chosen:
            name = tenant.decode()
            found += [
                (name, dict(await self._top(keys.prompts(name, model, window), _MOST_PROMPTS))) for window in both
            ]
        return hottest(found, most)

    async def _top(self, key: str, most: int) -> list[tuple[bytes, float]]:
        found: list[Any] = await self._valkey.zrevrange(key, 0, most - 1, withscores=True)
        return found
