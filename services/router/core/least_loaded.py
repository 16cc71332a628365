"""Whoever has least to do for its size: no affinity."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from services.router.core.decision import Decision, Wanted
from services.router.core.moves import Home
from services.router.core.pool import Pool
from services.router.core.sessions import Stay


class LeastLoaded:
    """The strategy. It remembers nothing."""

    wants_blocks = False

    def knows(self, wanted: Wanted, now: float) -> bool:
        """Nothing is to be learned."""
        return True

    def learn(self, wanted: Wanted, stay: Stay) -> None:
        """Of no use here."""

    def choose(self, wanted: Wanted, pool: Pool, now: float) -> Decision:
        """Chooses; changes nothing."""
        least = pool.least(wanted.lane, wanted.barred)
        if least is None:
            return Decision.nobody(any_open=pool.any_open)
        return Decision.unkeyed(least.worker, wanted.tokens)

    def placed(self, wanted: Wanted, decision: Decision, now: float) -> Stay | None:
        """Of no use here."""
        return None

    def homes(self, pool_of: Callable[[str], Pool | None], most: int) -> Iterator[Home]:
        """Nobody's home can be told ahead."""
        return iter(())

    def keep_only(self, models: set[str], workers: set[str]) -> None:
        """Of no use here."""
