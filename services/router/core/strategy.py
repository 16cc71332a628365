"""How a worker is chosen: one port, and what is behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from services.router.core.bounded import Bounded
from services.router.core.decision import Decision, Wanted
from services.router.core.least_loaded import LeastLoaded
from services.router.core.moves import Home
from services.router.core.pace import Pace
from services.router.core.pool import Pool
from services.router.core.prefix import PrefixAffinity, PrefixIndex
from services.router.core.rendezvous import Rendezvous
from services.router.core.ring import Ring
from services.router.core.sessions import Sessions, Stay

StrategyName = Literal["ring", "rendezvous", "least_loaded", "prefix"]


class Strategy(Protocol):
    """Chooses workers. `now` is seconds of one clock that does not go back; a strategy has none of its own."""

    @property
    def wants_blocks(self) -> bool:
        """It looks at `Wanted.blocks`, which take time to make."""
        ...

    def knows(self, wanted: Wanted, now: float) -> bool:
        """False when another router may know more of this session: then `learn` is worth a look."""
        ...

    def learn(self, wanted: Wanted, stay: Stay) -> None:
        """What another router noted of the session."""
        ...

    def choose(self, wanted: Wanted, pool: Pool, now: float) -> Decision:
        """Chooses; the same question has the same answer until something is placed or changes."""
        ...

    def placed(self, wanted: Wanted, decision: Decision, now: float) -> Stay | None:
        """The request goes where it was decided. Returns where its session is now, where sessions are remembered."""
        ...

    def homes(self, pool_of: Callable[[str], Pool | None], most: int) -> Iterator[Home]:
        """Where the sessions that were placed last will go with their next turn, as far as that can be told: the latest first,
        at most so many. Each holds for the workers there are when it is asked for."""
        ...

    def keep_only(self, models: set[str], workers: set[str]) -> None:
        """Forgets models and workers that are gone."""
        ...


@dataclass(frozen=True, slots=True)
class StrategyOptions:
    """Numbers of all strategies; docs/configuration.md says what each is."""

    vnodes: int = 160
    factor: float = 1.25
    floor: int = 4
    most_sessions: int = 50_000
    session_ttl_s: float = 600.0
    walk_home_ms: float = 50.0
    moves_per_s: float = 10.0
    prefix_blocks: int = 200_000


def make_strategy(name: StrategyName, options: StrategyOptions) -> Strategy:
    """The strategy of that name."""
    return _MAKERS[name](options)


def _bounded(order: Callable[[], Ring | Rendezvous], options: StrategyOptions) -> Bounded:
    return Bounded(
        order,
        Sessions(options.most_sessions, options.session_ttl_s),
        Pace(options.moves_per_s),
        factor=options.factor,
        floor=options.floor,
        walk_home_ms=options.walk_home_ms,
    )


_MAKERS: Final[Mapping[StrategyName, Callable[[StrategyOptions], Strategy]]] = {
    "ring": lambda options: _bounded(lambda: Ring(vnodes=options.vnodes), options),
    "rendezvous": lambda options: _bounded(Rendezvous, options),
    "least_loaded": lambda _: LeastLoaded(),
    "prefix": lambda options: PrefixAffinity(
        PrefixIndex(options.prefix_blocks), factor=options.factor, floor=options.floor
    ),
}
