"""The routers, as their leases say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamway.runtime.clock import Clock
from streamway.valkey.connection import Valkey
from streamway.valkey.leases import list_leases

# What was read longer ago says nothing of now.
_FRESH_S: Final = 5.0
# What a router says is believed up to here.
_MOST: Final = 10_000_000


class Routers:
    """What `look` saw last."""

    def __init__(self, valkey: Valkey, clock: Clock) -> None:
        self._valkey = valkey
        self._clock = clock
        self._generations = 0
        self._read_at = float("-inf")

    async def look(self) -> bool:
        """Reads the leases; whether there is any router. Raises RedisError or OSError."""
        leases = await list_leases(self._valkey, self._clock, "router")
        self._generations = sum(map(_generations, leases.values()))
        self._read_at = self._clock.monotonic()
        return bool(leases)

    def generations(self) -> int:
        """Generations that live at all routers together, up to a second ago; 0 while that cannot be read."""
        return self._generations if self._clock.monotonic() - self._read_at <= _FRESH_S else 0


def _generations(fields: Mapping[str, str]) -> int:
    said = fields.get("generations", "")
    return min(_MOST, int(said)) if said.isdecimal() and len(said) <= len(str(_MOST)) else 0
