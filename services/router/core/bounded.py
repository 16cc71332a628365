"""Affinity with bounded loads (Mirrokni, Thorup, Zadimoghaddam 2016), sessions that stay where their KV is, and paced moves.

A session's key gives an order of workers, home first. The first with room takes it:

    load + mine ≤ max(1.25 × (total + mine) × weight / Σ weights, 4 × whole)

Loads are tokens in flight, without those of the prompt that are in KV there; `whole` is mine with them; weights are places. The
first term keeps everyone near the mean; the second lets a quiet mesh keep sessions at home.

Urgent work for which no slot is free there goes on to one that keeps some (docs/adr/0039-a-slot-ahead.md) and has one free, if
that is sooner: waiting for the next end costs more than computing what is in KV once more.

A session that is known to be elsewhere is looked for there first:

    elsewhere since home had no room   stays while home would cost more, in milliseconds:  wait + prompt tokens not in KV × ms
    elsewhere since home is a new one  moves when it is its turn: so many sessions a second may move to a worker, others stay
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from services.router.core.decision import Branch, Candidate, Decision, Reason, Wanted
from services.router.core.moves import Home
from services.router.core.pace import Pace
from services.router.core.pool import Pool
from services.router.core.sessions import Sessions, Stay
from streamway.valkey.keys import CLASSES

# With a bound of 1.25 × the mean a walk looks at 16 workers in the mean where loads are even; one that found none
# with room in twice as many asks for the least loaded instead.
_LONGEST_WALK: Final = 32
URGENT: Final = CLASSES[0]


class Preference(Protocol):
    """An order of workers for a key, the same at every router that knows the same workers."""

    def adopt(self, workers: Mapping[str, float]) -> None:
        """Another set of workers, with their weights."""
        ...

    def walk(self, key: str) -> Iterator[str]:
        """Every worker once, home first."""
        ...


def bound(mine: float, whole: float, total: float, share: float, factor: float, floor: int) -> float:
    """Most tokens in flight a worker with this share of the weights may have, `mine` included.

    `whole` is the request without any KV, as it would count elsewhere: the floor is in requests of that size, or a cached turn
    would be sent away, and be computed anew, for the sake of a small load.
    """
    return max(factor * (total + mine) * share, floor * whole)


def has_room(candidate: Candidate, wanted: Wanted, pool: Pool, mine: int, factor: float, floor: int) -> bool:
    """It takes work, may have this, and `mine` more tokens keep it within its bound."""
    if not candidate.takes(wanted.lane) or candidate.worker in wanted.barred:
        return False
    share = candidate.weight / pool.weights
    return candidate.load + mine <= bound(mine, wanted.tokens, pool.total, share, factor, floor)


@dataclass(frozen=True, slots=True)
class _Question:
    """One decision while it is made. `stay` is where the session was, if that is known."""

    wanted: Wanted
    pool: Pool
    stay: Stay | None
    home: Candidate
    now: float

    def why_not_home(self) -> tuple[Branch, Reason]:
        """Why home does not take what it should."""
        if not self.home.open or self.home.worker in self.wanted.barred:
            return Branch.MOVED, Reason.CLOSED
        if self.home.kv_full:
            return Branch.SPILL, Reason.KV_FULL
        return Branch.SPILL, Reason.QUEUE_FULL if self.wanted.lane in self.home.full else Reason.OVER_BOUND


class Bounded:
    """The strategy. `walk_home_ms` is what it may cost, in milliseconds of prefill and waiting, to have a session home again."""

    wants_blocks = False

    def __init__(
        self,
        preference: Callable[[], Preference],
        sessions: Sessions,
        pace: Pace,
        *,
        factor: float = 1.25,
        floor: int = 4,
        walk_home_ms: float = 50.0,
    ) -> None:
        self._preference = preference
        self._sessions = sessions
        self._pace = pace
        self._factor = factor
        self._floor = floor
        self._walk_home_ms = walk_home_ms
        # By model: the order of its workers, and of which ones.
        self._orders: dict[str, tuple[Preference, Mapping[str, float]]] = {}

    def knows(self, wanted: Wanted, now: float) -> bool:
        """Where the session is is known here."""
        return self._sessions.find(wanted.tenant, wanted.model, wanted.session, now) is not None

    def learn(self, wanted: Wanted, stay: Stay) -> None:
        """What another router noted of the session."""
        self._sessions.learn(wanted.tenant, wanted.model, wanted.session, stay)

    def choose(self, wanted: Wanted, pool: Pool, now: float) -> Decision:
        """Chooses; changes nothing."""
        least = pool.least(wanted.lane, wanted.barred)
        if least is None:
            return Decision.nobody(any_open=pool.any_open)
        if not wanted.session:
            return Decision.unkeyed(least.worker, wanted.tokens)
        walk = self._order(wanted.model, pool).walk(wanted.session)
        home = pool[next(walk)]
        question = _Question(
            wanted, pool, self._sessions.find(wanted.tenant, wanted.model, wanted.session, now), home, now
        )
        decision = self._look_back(question) or self._look_around(question, walk, least)
        if wanted.lane == URGENT and not pool[decision.worker].starts_urgent:
            return self._look_for_slot(question, pool[decision.worker]) or decision
        return decision

    def placed(self, wanted: Wanted, decision: Decision, now: float) -> Stay | None:
        """The request goes where it was decided. Returns where its session is now; None without one."""
        if not wanted.session or not decision.worker:
            return None
        home = decision.home
        stay = self._sessions.find(wanted.tenant, wanted.model, wanted.session, now)
        if decision.reason is Reason.PACED_IN:
            self._pace.moved(home, now)
        elif stay is not None and decision.worker == stay.last and decision.worker != home:
            # A session that waits to move still belongs to its old home, and asks again with its next turn.
            home = stay.home
        tokens = wanted.tokens
        return self._sessions.placed(wanted.tenant, wanted.model, wanted.session, home, decision.worker, tokens, now)

    def homes(self, pool_of: Callable[[str], Pool | None], most: int) -> Iterator[Home]:
        """By the order of each session's workers."""
        for tenant, model, session in self._sessions.newest(most):
            pool = pool_of(model)
            if pool is not None and len(pool):
                yield Home(tenant, model, session, next(self._order(model, pool).walk(session)))

    def _look_back(self, question: _Question) -> Decision | None:
        """Whether a session goes on where it was, or comes home from there; None: where it was does not matter."""
        stay, pool, home, now = question.stay, question.pool, question.home, question.now
        if stay is None or stay.last == home.worker or stay.last not in pool:
            return None
        last = pool[stay.last]
        if not self._roomy(question, last):
            return None
        if not self._roomy(question, home):
            return self._decide(question, last, question.why_not_home()[0], Reason.KEPT)
        if stay.home != home.worker:
            if self._pace.allows(home.worker, now):
                return self._decide(question, home, Branch.HOME, Reason.PACED_IN)
            return self._decide(question, last, Branch.MOVED, Reason.WAITS_TO_MOVE)
        if self._cost_ms(question, home) - self._cost_ms(question, last) > self._walk_home_ms:
            return self._decide(question, last, Branch.SPILL, Reason.KEPT)
        return self._decide(question, home, Branch.HOME, Reason.RETURNED)

    def _look_around(self, question: _Question, walk: Iterator[str], least: Candidate) -> Decision:
        """Home, or whoever comes after it and has room, or the least loaded."""
        home = question.home
        if self._roomy(question, home):
            return self._decide(question, home, Branch.HOME, Reason.FIRST)
        branch, reason = question.why_not_home()
        for _, worker in zip(range(_LONGEST_WALK), walk, strict=False):
            candidate = question.pool[worker]
            if self._roomy(question, candidate):
                return self._decide(question, candidate, branch, reason)
        return self._decide(question, least, Branch.HOME if least is home else branch, Reason.LEAST)

    def _look_for_slot(self, question: _Question, chosen: Candidate) -> Decision | None:
        """Who has most slots free for urgent work, of those next on the way round from home that would say something sooner."""
        assert chosen.ahead is not None, "it was said to have no slot"
        waits_ms = (1 - chosen.ahead) * chosen.turnover_ms + self._prefill_ms(question, chosen)
        walk = self._order(question.wanted.model, question.pool).walk(question.wanted.session)
        near = [question.pool[worker] for _, worker in zip(range(_LONGEST_WALK), walk, strict=False)]
        found = [
            candidate
            for candidate in near
            if candidate.starts_urgent
            and candidate.takes(URGENT)
            and candidate.worker not in question.wanted.barred
            and self._prefill_ms(question, candidate) < waits_ms
        ]
        if not found:
            return None
        best = max(found, key=lambda candidate: math.inf if candidate.ahead is None else candidate.ahead)
        branch = Branch.HOME if best is question.home else Branch.SPILL
        return self._decide(question, best, branch, Reason.NO_SLOT)

    def _decide(self, question: _Question, candidate: Candidate, branch: Branch, reason: Reason) -> Decision:
        tokens = question.wanted.tokens_beside(self._cached(question, candidate))
        return Decision(candidate.worker, branch, reason, question.home.worker, tokens)

    def _cost_ms(self, question: _Question, candidate: Candidate) -> float:
        """Until the first token there: the wait for a slot, and the prompt tokens that are not in its KV."""
        return candidate.wait_ms + self._prefill_ms(question, candidate)

    def _prefill_ms(self, question: _Question, candidate: Candidate) -> float:
        uncached = max(0, question.wanted.prompt_tokens - self._cached(question, candidate))
        return uncached * candidate.prefill_ms

    def _roomy(self, question: _Question, candidate: Candidate) -> bool:
        mine = question.wanted.tokens_beside(self._cached(question, candidate))
        return has_room(candidate, question.wanted, question.pool, mine, self._factor, self._floor)

    def _cached(self, question: _Question, candidate: Candidate) -> int:
        return self._sessions.cached(question.stay, candidate.worker, question.now)

    def _order(self, model: str, pool: Pool) -> Preference:
        known = self._orders.get(model)
        if known is None or known[1] is not pool.sizes:
            order = known[0] if known is not None else self._preference()
            order.adopt(pool.sizes)
            known = self._orders[model] = (order, pool.sizes)
        return known[0]

    def keep_only(self, models: set[str], workers: set[str]) -> None:
        """Forgets models and workers that are gone."""
        self._orders = {model: order for model, order in self._orders.items() if model in models}
        self._pace.keep_only(workers)
