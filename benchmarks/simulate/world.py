"""A mesh in virtual time: one heap of what happens next, and no clock but that."""

from __future__ import annotations

import heapq
import json
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Final

from benchmarks.simulate.conversation import Conversations
from benchmarks.simulate.results import Outcome
from benchmarks.simulate.scenario import Scenario, Turn
from benchmarks.simulate.worker import MODEL, SimWorker, Task
from services.router.core.decision import Wanted
from services.router.core.fleet import Fleet
from services.router.core.ledger import Ledger
from services.router.core.prefix import block_names
from services.router.core.strategy import StrategyName, StrategyOptions, make_strategy
from streamway.simulation.request import read
from streamway.v1 import common_pb2
from streamway.valkey.keys import CLASSES, task_class

# As in the mesh: how often a lease is renewed and looked at, and what a task's way through the store takes.
_RENEW_S: Final = 1.0
_LOOK_S: Final = 0.5
_TICK_S: Final = 0.05
_HOP_S: Final = 0.001


class _Router:
    def __init__(self, scenario: Scenario, strategy: StrategyName, options: StrategyOptions) -> None:
        self.ledger = Ledger()
        self.fleet = Fleet(self.ledger, scenario.queue_limit, 0.125)
        self.strategy = make_strategy(strategy, options)

    def look(self, workers: list[SimWorker], now: float) -> None:
        counted = [(worker.report, worker.lanes) for worker in workers]
        seen = [replace(report, lanes=lanes, polled_ms=now * 1000) for report, lanes in counted]
        for worker in seen:
            self.ledger.seen(worker)
        self.ledger.age(now * 1000)
        self.fleet.adopt(seen)
        self.strategy.keep_only(self.fleet.models, {worker.id for worker in seen})


class World:
    """Runs one scenario once. The same scenario and strategy give the same outcomes."""

    def __init__(
        self,
        scenario: Scenario,
        strategy: StrategyName = "ring",
        *,
        fair: bool = True,
        options: StrategyOptions | None = None,
    ) -> None:
        self._scenario = scenario
        self._fair = fair
        self._routers = [_Router(scenario, strategy, options or StrategyOptions()) for _ in range(scenario.routers)]
        self.workers: dict[str, SimWorker] = {}
        self.outcomes: list[Outcome] = []
        self._conversations = Conversations(scenario)
        self._busy: dict[int, deque[Turn]] = {}
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()
        # When each engine is stepped next.
        self._wakes: dict[str, float] = {}
        self._open = 0

    def run(self) -> list[Outcome]:
        """Until every turn has ended."""
        scenario = self._scenario
        for number in range(scenario.workers):
            self._join(f"adapter-{number}", 0.0)
        self._look(0.0)
        if scenario.joins_at_s:
            self._at(scenario.joins_at_s, lambda now: self._join(f"adapter-{scenario.workers}", now))
        turns = scenario.turns()
        self._open = 1
        self._next_turn(turns, 0.0)
        while self._open:
            now, _, happens = heapq.heappop(self._heap)
            happens(now)
        return self.outcomes

    def _at(self, when: float, happens: Callable[[float], None]) -> None:
        heapq.heappush(self._heap, (when, next(self._order), happens))

    def _next_turn(self, turns: object, now: float) -> None:
        turn = next(turns, None)  # type: ignore[call-overload]
        if turn is None:
            self._open -= 1
            return

        def arrive(at: float) -> None:
            self._arrive(turn, at)
            self._next_turn(turns, at)

        self._at(turn.at, arrive)

    def _join(self, id_: str, now: float) -> None:
        asked = self._scenario
        worker = self.workers[id_] = SimWorker(
            id_,
            asked.engine,
            asked.preload_depth,
            fair=self._fair,
            ahead=asked.slots_ahead,
            queue_timeout_s=asked.queue_timeout_s,
        )
        worker.renew(now)

        def renew(at: float) -> None:
            worker.renew(at)
            self._at(at + _RENEW_S, renew)

        def tick(at: float) -> None:
            worker.tick(at)
            self._step(worker, at)
            self._at(at + _TICK_S, tick)

        # Not all at the same moment, as in life.
        self._at(now + _RENEW_S * (len(self.workers) % 7) / 7, renew)
        self._at(now + _TICK_S, tick)

    def _look(self, now: float) -> None:
        for router in self._routers:
            router.look(list(self.workers.values()), now)
        self._at(now + _LOOK_S, self._look)

    def _arrive(self, turn: Turn, now: float) -> None:
        waiting = self._busy.get(turn.session)
        self._open += 1
        if waiting is not None:
            waiting.append(turn)
            return
        self._busy[turn.session] = deque()
        self._ask(turn, now)

    def _ask(self, turn: Turn, now: float) -> None:
        messages = self._conversations.ask(turn)
        outcome = Outcome(turn.session, turn.tier.name, now)
        self.outcomes.append(outcome)
        # Edges choose routers by the session.
        router = self._routers[turn.session % len(self._routers)]
        prompt_tokens = sum(len(role) + len(content) for role, content in messages) // 4 + 1
        blocks: tuple[int, ...] = ()
        if router.strategy.wants_blocks:
            said = [common_pb2.Message(role=role, content=content) for role, content in messages]
            blocks = block_names(common_pb2.GenerationRequest(model=MODEL, messages=said))
        wanted = Wanted(MODEL, f"session-{turn.session}", prompt_tokens, turn.answer_tokens, "t", blocks)
        pool = router.fleet.pool(MODEL)
        assert pool is not None
        lane = task_class(turn.tier.priority, turn.tier.number) if self._fair else CLASSES[0]
        wanted = replace(wanted, lane=lane)
        decision = router.strategy.choose(wanted, pool, now)
        outcome.worker, outcome.branch = decision.worker, decision.branch
        generation = f"{turn.session}/{next(self._order)}"

        def over(text: str, at: float) -> None:
            router.ledger.settle(generation)
            outcome.ended_at = at
            self._conversations.answered(turn, text)
            self._open -= 1
            waiting = self._busy[turn.session]
            if waiting:
                self._ask(waiting.popleft(), at)
            else:
                del self._busy[turn.session]

        if not decision.worker:
            outcome.refused = decision.reason
            over("", now)
            return
        router.strategy.placed(wanted, decision, now)
        router.ledger.add(generation, decision.worker, decision.tokens, now * 1000, lane)

        def first(at: float) -> None:
            outcome.first_at = at + _HOP_S

        def done(cached: int, made: int, at: float) -> None:
            outcome.cached_tokens, outcome.made_tokens = cached, made
            outcome.begun_at, outcome.token_times = task.begun_at, task.token_times
            over("".join(task.text), at)

        def refused(at: float) -> None:
            outcome.refused = "queue_timeout"
            over("", at)

        said_json = {
            "messages": [{"role": role, "content": content} for role, content in messages],
            "max_tokens": turn.answer_tokens,
        }
        request = read(json.dumps(said_json).encode(), self._scenario.engine)
        outcome.prompt_tokens = request.prompt_tokens
        tier = turn.tier
        task = Task(
            *(generation, request, tier.name, tier.weight, tier.priority, lane, decision.tokens),
            *(first, done, refused),
        )
        worker = self.workers[decision.worker]

        def arrive(at: float) -> None:
            worker.add(task, at)
            self._step(worker, at)

        self._at(now + _HOP_S, arrive)

    def _step(self, worker: SimWorker, now: float) -> None:
        """Steps an engine, and has it stepped again when it is due."""
        wake = worker.step(now)
        if wake is None or self._wakes.get(worker.id) == wake:
            return
        self._wakes[worker.id] = wake

        def due(at: float) -> None:
            if self._wakes.get(worker.id) == at:
                del self._wakes[worker.id]
                self._step(worker, at)

        self._at(wake, due)
