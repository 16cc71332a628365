"""The idempotency keys that one router has seen: what it goes by while the store is away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from services.router.core.idempotency import Claim


@dataclass(frozen=True, slots=True)
class Seen:
    """What a key began, and at which worker ("", "": none). `durable`: it has a channel. `stored`: the store has the claim."""

    claim: Claim
    durable: bool
    stored: bool
    worker: str = ""
    address: str = ""


class KeyTable:
    """At most `most` keys, each for `kept_s` and for as long as `in_flight` has its generation; over that the oldest goes.

    `kept_s` fits how long an ended answer can be read: a key that led to nothing readable would only be in the way.
    """

    def __init__(self, most: int, kept_s: float, in_flight: Callable[[str], bool]) -> None:
        self._most = most
        self._kept_s = kept_s
        self._in_flight = in_flight
        self._seen: dict[str, tuple[Seen, float]] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def get(self, key: str, now: float) -> Seen | None:
        """What a key began here, if that is still known."""
        found = self._seen.get(key)
        if found is None:
            return None
        seen, since = found
        if now - since > self._kept_s and not self._in_flight(seen.claim.generation):
            del self._seen[key]
            return None
        return seen

    def put(self, key: str, seen: Seen, now: float) -> None:
        """Remembers a key, in the place of what it began before."""
        self._seen.pop(key, None)
        self._seen[key] = (seen, now)
        while len(self._seen) > self._most:
            del self._seen[next(iter(self._seen))]

    def drop(self, key: str, generation: str) -> None:
        """The generation was refused, or can't be read again: its key is free."""
        found = self._seen.get(key)
        if found is not None and found[0].claim.generation == generation:
            del self._seen[key]
