"""The orders of preference: ring and rendezvous."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from services.router.core.bounded import Preference
from services.router.core.rendezvous import Rendezvous
from services.router.core.ring import Ring

KEY = "0123456789abcdef"


@pytest.mark.parametrize("make", [Ring, Rendezvous])
def test_a_walk_visits_every_worker_once_and_always_in_the_same_order(make: type[Preference]) -> None:
    order = make()
    assert list(order.walk(KEY)) == []
    order.adopt({"a": 1.0, "b": 1.0, "c": 1.0})
    walked = list(order.walk(KEY))
    assert sorted(walked) == ["a", "b", "c"]
    other = make()
    other.adopt({"c": 1.0, "a": 1.0, "b": 1.0})
    assert list(other.walk(KEY)) == walked


@pytest.mark.parametrize("make", [Ring, Rendezvous])
def test_a_set_that_changes_step_by_step_is_the_set_made_at_once(make: type[Preference]) -> None:
    draw = random.Random(5)
    order, names = make(), {f"w{number}" for number in range(6)}
    order.adopt(dict.fromkeys(names, 1.0))
    for step in range(30):
        names ^= {f"w{draw.randrange(12)}", f"w{draw.randrange(12)}"}
        order.adopt(dict.fromkeys(names, 1.0))
        fresh = make()
        fresh.adopt(dict.fromkeys(names, 1.0))
        assert list(order.walk(f"{KEY}{step}")) == list(fresh.walk(f"{KEY}{step}"))


def test_rendezvous_gives_each_worker_the_share_of_its_weight() -> None:
    order = Rendezvous()
    order.adopt({"small": 1.0, "big": 3.0})
    homes = Counter(next(order.walk(f"session-{number}")) for number in range(4000))
    assert 0.72 < homes["big"] / 4000 < 0.78
