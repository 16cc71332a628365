"""What every strategy promises."""

from __future__ import annotations

import random
from typing import get_args

import pytest

from services.router.core.decision import Branch, Candidate, Wanted
from services.router.core.pool import Pool
from services.router.core.strategy import StrategyName, StrategyOptions, make_strategy
from streamway.valkey.keys import CLASSES


@pytest.mark.parametrize("name", get_args(StrategyName))
def test_a_decision_is_a_worker_that_takes_work_or_a_reason(name: StrategyName) -> None:
    draw = random.Random(17)
    strategy = make_strategy(name, StrategyOptions(vnodes=20, session_ttl_s=50, moves_per_s=2))
    for step in range(1500):
        if step % 50 == 0:
            names = [f"w{draw.randrange(9)}" for _ in range(draw.randint(1, 8))]
            pool = Pool(Candidate(one, draw.randint(1, 8), 0, prefill_ms=0.1) for one in set(names))
            strategy.keep_only({"m"}, set(pool))
        one = draw.choice(list(pool))
        pool.put(
            Candidate(
                one,
                pool[one].weight,
                draw.randrange(5000),
                draw.random() < 0.8,
                frozenset(lane for lane in CLASSES if draw.random() < 0.2),
                draw.choice([0.0, 40.0, 400.0]),
                0.1,
            )
        )
        session = f"s{draw.randrange(40)}" if draw.random() < 0.9 else ""
        barred = frozenset({draw.choice(list(pool))}) if draw.random() < 0.2 else frozenset[str]()
        blocks = tuple(draw.randrange(6) * 1000 + depth for depth in range(draw.randrange(5)))
        wanted = Wanted(
            "m", session, draw.randint(1, 3000), draw.randint(1, 300), "t", blocks, barred, draw.choice(CLASSES)
        )
        decision = strategy.choose(wanted, pool, float(step))
        takers = {one.worker for one in pool.values() if one.takes(wanted.lane)} - barred
        assert strategy.choose(wanted, pool, float(step)) == decision, "the same question has the same answer"
        strategy.placed(wanted, decision, float(step))
        if not takers:
            assert (decision.worker, decision.branch) == ("", Branch.NONE_ELIGIBLE)
            assert decision.full == any(candidate.open for candidate in pool.values())
        else:
            assert decision.worker in takers
            assert (decision.branch == Branch.HOME) == (decision.worker == decision.home)
            assert 0 < decision.tokens <= wanted.tokens
