"""Which entry goes when bytes run out: orders behind one port, weighed by what an entry saves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

from services.cache.core.eviction.lru import Lru
from services.cache.core.eviction.lru2 import Lru2
from services.cache.core.eviction.port import Eviction, Key
from services.cache.core.eviction.s3fifo import S3Fifo
from services.cache.core.eviction.sieve import Sieve
from services.cache.core.eviction.tinylfu import TinyLfu
from services.cache.core.eviction.weighed import Weighed

__all__ = ["ORDERS", "Eviction", "EvictionName", "Key", "Weighed", "make_eviction"]

EvictionName = Literal["lru", "lru-2", "s3-fifo", "sieve", "w-tinylfu"]
ORDERS: Final[Mapping[EvictionName, Callable[[], Eviction]]] = {
    "lru": Lru,
    "lru-2": Lru2,
    "s3-fifo": S3Fifo,
    "sieve": Sieve,
    "w-tinylfu": TinyLfu,
}


def make_eviction(name: EvictionName) -> Eviction:
    """The order of that name, weighed."""
    return Weighed(ORDERS[name]())
