"""All breakers: one for each worker, model and tier, judged by the same outcomes against three thresholds.

    barred(model, tier, pool) ──► Strategy, which goes past those workers
    placed(worker, model, tier) ──► Call ──► ended(call, failed)

A worker with 8 % of failures is closed to gold and open to the others. When more than half of a pool is barred, its breakers are
ignored: then it is not the workers, and what is left of them would break under the work of all. New work is shed instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from services.router.core.breaker import Breaker, State, Waits
from services.router.core.pool import Pool
from services.router.core.threshold import DEFAULT_RULES, BreakerRule, Threshold
from streamway.tenancy import TierName

_NOBODY: Final[Set[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class BreakerOptions:
    """Numbers of all breakers; docs/configuration.md says what each is."""

    rules: Mapping[TierName, BreakerRule] = field(default_factory=lambda: DEFAULT_RULES)
    least_calls: int = 10
    waits: Waits = field(default_factory=Waits)


class Spot(NamedTuple):
    """Whose breaker."""

    worker: str
    model: str
    tier: TierName


class Call(NamedTuple):
    """A request that was placed. `round` is that of the breaker whose probe it is, 0: no probe."""

    spot: Spot
    round: int


class Transition(NamedTuple):
    """A breaker has changed its state. `wait_s` is how long an open one waits; `learned`: another router found or closed it."""

    spot: Spot
    before: State
    after: State
    openings: int
    wait_s: float
    learned: bool


class Barred(NamedTuple):
    """Workers that get nothing. `panic`: too many were barred, so that none is."""

    workers: Set[str]
    panic: bool


class Breakers:
    """The table. `draw` gives 0 … 1, for the jitter; `now` is seconds of one clock that does not go back."""

    def __init__(self, options: BreakerOptions, draw: Callable[[], float]) -> None:
        self._options = options
        self._draw = draw
        self._breakers: dict[tuple[str, str], dict[TierName, Breaker]] = {}
        self._thresholds: dict[tuple[str, TierName], Threshold] = {}
        # Those that are not closed: decisions look at no others.
        self._troubled: dict[tuple[str, TierName], dict[str, Breaker]] = {}
        self._transitions: list[Transition] = []

    def state(self, spot: Spot) -> State:
        """Closed where nothing has been seen yet."""
        found = self._breakers.get((spot.worker, spot.model))
        return found[spot.tier].state if found is not None else State.CLOSED

    def threshold(self, model: str, tier: TierName) -> float:
        """The error rate above which a breaker opens now."""
        found = self._thresholds.get((model, tier))
        return found.value if found is not None else self._options.rules[tier].start

    def barred(self, model: str, tier: TierName, pool: Pool, now: float) -> Barred:
        """Whom a request of this tier must not go to; changes nothing."""
        troubled = self._troubled.get((model, tier))
        if not troubled:
            return Barred(_NOBODY, panic=False)
        barred = {worker for worker, one in troubled.items() if one.bars(now) and worker in pool and pool[worker].open}
        if 2 * len(barred) > pool.open:
            return Barred(_NOBODY, panic=True)
        return Barred(barred, panic=False)

    def placed(self, spot: Spot, now: float) -> Call:
        """A request goes there."""
        troubled = self._troubled.get((spot.model, spot.tier), {}).get(spot.worker)
        if troubled is None:
            return Call(spot, 0)
        before = troubled.state
        round_ = troubled.placed(now)
        self._changed(spot, troubled, before)
        return Call(spot, round_)

    def ended(self, call: Call, failed: bool | None, now: float) -> None:
        """It has ended. None: in a way that says nothing of the worker."""
        spot = call.spot
        if call.round:
            breaker = self._breakers.get((spot.worker, spot.model), {}).get(spot.tier)
            if breaker is not None:
                before = breaker.state
                breaker.probed(call.round, failed, self._options.waits, now, self._draw())
                self._changed(spot, breaker, before)
        if failed is None:
            return
        for tier, breaker in self._of(spot.worker, spot.model).items():
            threshold = self._threshold(spot.model, tier, now)
            threshold.note(now, failed=failed)
            if call.round and tier is spot.tier:
                continue
            before = breaker.state
            breaker.note(
                threshold.value, self._options.least_calls, self._options.waits, now, self._draw(), failed=failed
            )
            self._changed(Spot(spot.worker, spot.model, tier), breaker, before)

    def learn(self, spot: Spot, openings: int, wait_s: float, now: float) -> None:
        """Another router has opened it, for `wait_s` more; no longer than one of ours could."""
        waits = self._options.waits
        breaker = self._of(spot.worker, spot.model)[spot.tier]
        before, round_ = breaker.state, breaker.round
        breaker.learn(openings, min(wait_s, waits.longest_s * (1 + waits.jitter)), now)
        if breaker.round != round_:
            self._changed(spot, breaker, before, learned=True)

    def learn_closed(self, spot: Spot, openings: int, now: float) -> None:
        """Another router has closed it, after so many openings in a row."""
        breaker = self._of(spot.worker, spot.model)[spot.tier]
        before = breaker.state
        breaker.learn_closed(openings, now)
        if breaker.state is not before:
            self._changed(spot, breaker, before, learned=True)

    def pass_time(self, now: float) -> None:
        """Open ones whose wait is over are half open."""
        for (model, tier), troubled in list(self._troubled.items()):
            for worker, breaker in list(troubled.items()):
                before = breaker.state
                breaker.pass_time(now)
                self._changed(Spot(worker, model, tier), breaker, before)

    def keep_only(self, models: Set[str], workers: Set[str]) -> list[Spot]:
        """Forgets workers and models that are gone; returns whose breakers those were."""
        gone = [key for key in self._breakers if key[0] not in workers or key[1] not in models]
        for worker, model in gone:
            del self._breakers[worker, model]
            for tier in TierName:
                self._calm(Spot(worker, model, tier))
        self._thresholds = {key: one for key, one in self._thresholds.items() if key[0] in models}
        return [Spot(worker, model, tier) for worker, model in gone for tier in TierName]

    def take_transitions(self) -> list[Transition]:
        """What has changed since the last time."""
        taken, self._transitions = self._transitions, []
        return taken

    def _of(self, worker: str, model: str) -> dict[TierName, Breaker]:
        found = self._breakers.get((worker, model))
        if found is None:
            found = {tier: Breaker(rule.window_s) for tier, rule in self._options.rules.items()}
            self._breakers[worker, model] = found
        return found

    def _threshold(self, model: str, tier: TierName, now: float) -> Threshold:
        found = self._thresholds.get((model, tier))
        if found is None:
            found = Threshold(self._options.rules[tier], self._options.least_calls, now)
            self._thresholds[model, tier] = found
        return found

    def _changed(self, spot: Spot, breaker: Breaker, before: State, *, learned: bool = False) -> None:
        if breaker.state is before and not learned:
            return
        if breaker.state is State.CLOSED:
            self._calm(spot)
        else:
            self._troubled.setdefault((spot.model, spot.tier), {})[spot.worker] = breaker
        wait_s = breaker.wait_s if breaker.state is State.OPEN else 0.0
        self._transitions.append(Transition(spot, before, breaker.state, breaker.openings, wait_s, learned))

    def _calm(self, spot: Spot) -> None:
        troubled = self._troubled.get((spot.model, spot.tier), {})
        troubled.pop(spot.worker, None)
        if not troubled:
            self._troubled.pop((spot.model, spot.tier), None)
