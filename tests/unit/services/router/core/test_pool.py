"""The sums over the workers of a model, kept change by change."""

from __future__ import annotations

import random
from itertools import product

from services.router.core.decision import Candidate
from services.router.core.pool import Pool
from services.router.core.tournament import NEVER, Tournament
from streamway.valkey.keys import CLASSES


def test_the_sums_and_the_least_loaded_are_right_after_any_changes() -> None:
    draw = random.Random(3)
    names = [f"w{number}" for number in range(13)]
    pool = Pool(Candidate(name, 4, 0) for name in names)
    for _ in range(2000):
        pool.put(
            Candidate(
                draw.choice(names),
                draw.randint(1, 9),
                draw.randrange(500),
                draw.random() < 0.8,
                frozenset(lane for lane in CLASSES if draw.random() < 0.2),
            )
        )
        takers = [one for one in pool.values() if one.open]
        assert (pool.total, pool.weights) == (sum(one.load for one in takers), sum(one.weight for one in takers))
        barred = {draw.choice(names)}
        for lane, closed in product(CLASSES, (set(), barred)):
            free = [one for one in pool.values() if one.takes(lane) and one.worker not in closed]
            expected = min(free, key=lambda one: (one.load / one.weight, one.worker), default=None)
            found = pool.least(lane, closed)
            assert (found is None) == (expected is None)
            if found is not None and expected is not None:
                assert found.pressure == expected.pressure
                assert found.worker not in closed


def test_other_workers_have_other_sizes() -> None:
    pool = Pool([Candidate("a", 1, 5)])
    sizes = pool.sizes
    pool.put(Candidate("a", 1, 6))
    assert pool.sizes is sizes
    pool.replace([Candidate("b", 2, 1)])
    assert (sizes, pool.sizes) == ({"a": 1}, {"b": 2})
    assert (dict(pool), pool.total, pool.weights) == ({"b": Candidate("b", 2, 1)}, 1, 2)


def test_of_equals_the_first_name_wins_and_never_is_never_chosen() -> None:
    numbers = Tournament(["c", "a", "b"])
    assert numbers.least() is None
    for name in "cba":
        numbers.set(name, 7.0)
    assert numbers.least() == "a"
    numbers.set("a", NEVER)
    assert numbers.least() == "b"
    assert Tournament([]).least() is None
