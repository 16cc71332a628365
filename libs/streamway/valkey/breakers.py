"""What routers tell one another of a model's breakers.

sw:breaker:{model} hash   "adapter-0 gold" → "1764442005123 2"     open until (Unix ms), how often in a row
                                             "-1764442009456 2"    closed at, after how many openings
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from streamway.tenancy import TierName


class Told(NamedTuple):
    """One field of the hash. `until_ms` (Unix ms) is negative where the breaker was closed, then."""

    worker: str
    tier: TierName
    until_ms: int
    openings: int


def read(fields: Mapping[bytes, bytes]) -> Iterator[tuple[bytes, Told]]:
    """What can be read of a hash, by field; the rest is nothing of ours."""
    for field, value in fields.items():
        try:
            worker, tier = field.decode().split(" ")
            until_ms, openings = map(int, value.decode().split(" "))
            yield field, Told(worker, TierName(tier), until_ms, openings)
        except ValueError:
            continue
