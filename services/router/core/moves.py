"""Which sessions will come to a worker that is new, so that it can fill its KV before they do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

# So many sessions are looked at for a new worker, those of the latest turns first; so many of them at once.
MOST_LOOKED_AT: Final = 4000
_AT_ONCE: Final = 500
# More than a worker could warm before most of them have come.
MOST_TOLD: Final = 256


@dataclass(frozen=True, slots=True)
class Home:
    """A session, and which worker is its home."""

    tenant: str
    model: str
    session: str
    worker: str


class Moves:
    """Looks through the sessions once for every worker that came, or began a new life. `homes` gives them anew for each look."""

    def __init__(self, homes: Callable[[int], Iterator[Home]]) -> None:
        self._homes = homes
        self._lives: dict[str, float] = {}
        self._new: set[str] = set()
        # The look under way: whom it is for, what is still to be seen, and how many each was told of.
        self._wanted: frozenset[str] = frozenset()
        self._rest: Iterator[Home] = iter(())
        self._told: dict[str, int] = {}

    def seen(self, lives: Mapping[str, float]) -> None:
        """The workers there are, and when the life of each began."""
        self._new |= {worker for worker, began in lives.items() if self._lives.get(worker) != began}
        self._new &= lives.keys()
        self._lives = dict(lives)

    def step(self) -> list[Home]:
        """A part of the look: sessions whose home is a new worker. Takes about as long as a thousand hashes."""
        if not self._wanted:
            if not self._new:
                return []
            self._wanted, self._new = frozenset(self._new), set()
            self._rest, self._told = self._homes(MOST_LOOKED_AT), {}
        found: list[Home] = []
        for _ in range(_AT_ONCE):
            home = next(self._rest, None)
            if home is None:
                self._wanted = frozenset()
                break
            told = self._told.get(home.worker, 0)
            if home.worker in self._wanted and told < MOST_TOLD:
                self._told[home.worker] = told + 1
                found.append(home)
        return found
