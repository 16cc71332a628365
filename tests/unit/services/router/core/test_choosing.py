"""A large and a small model behind one name: when the small one is used, and when the large one again."""

from __future__ import annotations

from services.router.core.choosing import Chooser, Condition, Why, conditions
from services.router.core.worker import ServedModel, Worker
from streamway.models import Choice

CHOICE = Choice("big", "small", first_token_ms=1000, kv_used=0.9, return_below=0.5, hold_s=10)
SMALL = Condition(1)


def test_the_small_one_takes_over_at_either_limit_and_not_below() -> None:
    for large, why in (
        (Condition(1, 999, 0.89), Why.LARGE),
        (Condition(1, 1000, 0), Why.SLOW),
        (Condition(1, 0, 0.9), Why.MEMORY),
        (Condition(), Why.NO_LARGE),
    ):
        chooser = Chooser()
        assert chooser.decide(CHOICE, large, SMALL, 0) is why
        assert chooser.prefer_small is (why is not Why.LARGE)


def test_without_the_small_one_there_is_no_choice() -> None:
    chooser = Chooser()
    assert chooser.decide(CHOICE, Condition(1, 5000, 1), Condition(), 0) is Why.NO_SMALL
    assert not chooser.prefer_small


def test_the_large_one_returns_well_below_the_limits_and_after_the_hold() -> None:
    chooser = Chooser()
    chooser.decide(CHOICE, Condition(1, 1000), SMALL, 100)
    assert chooser.decide(CHOICE, Condition(1, 600), SMALL, 120) is Why.HELD, "better, but not by enough"
    assert chooser.decide(CHOICE, Condition(1, 499, 0.5), SMALL, 121) is Why.HELD, "its KV is not"
    assert chooser.decide(CHOICE, Condition(1, 499, 0.4), SMALL, 109.9) is Why.HELD, "too soon"
    assert chooser.prefer_small
    assert chooser.decide(CHOICE, Condition(1, 499, 0.4), SMALL, 110) is Why.LARGE
    assert not chooser.prefer_small


def test_a_load_that_swings_around_the_limit_changes_nothing_more_than_once_a_hold() -> None:
    chooser, changes, before = Chooser(), 0, False
    for tick in range(200):  # 100 s
        large = Condition(1, 1100 if tick % 2 else 400)
        chooser.decide(CHOICE, large, SMALL, tick / 2)
        changes += chooser.prefer_small is not before
        before = chooser.prefer_small
    assert 2 <= changes <= 20


def test_a_condition_is_the_mean_over_ready_workers_by_their_slots() -> None:
    workers = [
        Worker("a", "x:1", (ServedModel("big", 0, 300),), 3, kv_used=0.4),
        Worker("b", "x:2", (ServedModel("big", 0, 700), ServedModel("small", 0, 10)), 1, kv_used=0.8),
        Worker("c", "x:3", (ServedModel("big", 0, 9000),), 1, kv_used=1.0, draining=True),
    ]
    found = conditions(workers, ["big", "small", "other"])
    assert found["big"].workers == 2
    assert (found["big"].first_token_ms, round(found["big"].kv_used, 3)) == (400, 0.5)
    assert (found["small"].workers, found["small"].first_token_ms) == (1, 10)
    assert "other" not in found


def test_a_worker_tells_its_first_tokens_by_model_and_its_kv() -> None:
    models = '[{"name": "m", "context_tokens": 10, "first_token_ms": 12.5}, {"name": "n"}]'
    worker = Worker.parse("w", {"address": "x:1", "models": models, "slots": "4", "kv_used": "0.25"})
    assert [served.first_token_ms for served in worker.models] == [12.5, 0]
    assert worker.kv_used == 0.25
    lies = models.replace("12.5", "1e300")
    assert Worker.parse("w", {"address": "x", "models": lies, "slots": "1", "kv_used": "7"}).kv_used == 1
