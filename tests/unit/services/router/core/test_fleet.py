"""Workers as decisions see them, between two looks at their leases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.router.core.fleet import Fleet
from services.router.core.ledger import Ledger
from services.router.core.worker import ServedModel, Worker


def _worker(id_: str, *models: str, load: int = 0, tasks: int = 0, at: float = 1000.0) -> Worker:
    served = tuple(ServedModel(model, 0) for model in models or ("m",))
    return Worker(id_, "x:1", served, 4, load_tokens=load, reported_ms=at, tasks=tasks, polled_ms=at)


class _World:
    def __init__(self, *workers: Worker) -> None:
        self.ledger = Ledger(stale_ms=5000)
        self.fleet = Fleet(self.ledger, queue_limit=2, prefill_ms=0.125)
        self.look(*workers)

    def look(self, *workers: Worker, now: float = 1000.0) -> None:
        for worker in workers:
            self.ledger.seen(worker)
        self.ledger.age(now)
        self.fleet.adopt(workers)

    def loads(self, model: str = "m") -> dict[str, float]:
        pool = self.fleet.pool(model)
        assert pool is not None
        assert pool.total == sum(one.load for one in pool.values() if one.open)
        return {id_: candidate.load for id_, candidate in pool.items()}


def test_a_dispatch_and_an_end_show_in_the_next_decision() -> None:
    world = _World(_worker("a"), _worker("b"))
    world.ledger.add("g", "a", 300, 1100)
    assert world.loads() == {"a": 300, "b": 0}
    world.ledger.settle("g")
    assert world.loads() == {"a": 0, "b": 0}


def test_a_worker_of_two_models_is_one_worker() -> None:
    world = _World(_worker("a", "m", "n"), _worker("b", "n"))
    world.ledger.add("g", "a", 300, 1100)
    assert world.loads("m") == {"a": 300}
    assert world.loads("n") == {"a": 300, "b": 0}
    assert world.fleet.pool("other") is None
    world.look(_worker("b", "n"))
    assert world.fleet.pool("m") is None
    assert world.fleet.models == {"n"}


def test_a_queue_at_its_limit_is_full_and_a_closed_worker_is_closed() -> None:
    world = _World(_worker("a", tasks=5), _worker("b"))
    world.ledger.add("g", "a", 300, 1100)
    pool = world.fleet.pool("m")
    assert pool is not None
    assert pool["a"].full
    world.fleet.close({"b"})
    assert not pool["b"].open
    world.fleet.close(set())
    assert pool["b"].open


def test_a_queue_follows_the_depth_that_its_worker_reports() -> None:
    ledger = Ledger()
    fleet = Fleet(ledger, None, 0.125)
    workers = [replace(_worker("a", tasks=7), preload_depth=1), replace(_worker("b", tasks=7), preload_depth=2)]
    for worker in workers:
        ledger.seen(worker)
    fleet.adopt(workers)
    pool = fleet.pool("m")
    assert pool is not None
    assert (pool["a"].full, pool["b"].full) == (True, False)


def test_bulk_fills_half_of_a_queue_and_interactive_work_all_of_it() -> None:
    ledger = Ledger()
    fleet = Fleet(ledger, None, 0.125)
    # Four slots, and twice a depth of two: from six tasks on no bulk, from eight on nothing.
    workers = [replace(_worker("a", tasks=6), preload_depth=2), replace(_worker("b", tasks=5), preload_depth=2)]
    for worker in workers:
        ledger.seen(worker)
    fleet.adopt(workers)
    pool = fleet.pool("m")
    assert pool is not None
    assert fleet.full_for_bulk == {"a"}
    assert not pool["a"].full
    ledger.add("g", "b", 10, 1100)
    fleet.pool("m")
    assert fleet.full_for_bulk == {"a", "b"}
    ledger.settle("g")
    fleet.pool("m")
    assert fleet.full_for_bulk == {"a"}


def test_the_wait_is_what_is_ahead_at_the_pace_of_late() -> None:
    world = _World(replace(_worker("a", tasks=4), slot_ms=800.0, prefill_ms=0.5), _worker("b", tasks=3))
    pool = world.fleet.pool("m")
    assert pool is not None
    assert (pool["a"].wait_ms, pool["a"].prefill_ms) == (200.0, 0.5)
    assert (pool["b"].wait_ms, pool["b"].prefill_ms) == (0.0, 0.125)


def test_e3_a_report_that_is_too_old_is_told_and_counts_as_much_as_the_others() -> None:
    world = _World(_worker("a", load=9000), _worker("b", load=100), _worker("c", load=300))
    fresh = [_worker("b", load=100, at=7000), _worker("c", load=300, at=7000)]
    world.look(_worker("a", load=9000), *fresh, now=7000)
    assert world.ledger.stale("a")
    assert not world.ledger.stale("b")
    assert world.ledger.report_age_ms(7000) == 6000
    assert world.loads() == {"a": 200, "b": 100, "c": 300}
    world.ledger.add("g", "a", 700, 7100)
    assert world.loads()["a"] == 700, "what we have there ourselves is known"
    world.look(_worker("a", load=9000, at=8000), *fresh, now=8000)
    assert not world.ledger.stale("a")
    assert world.loads()["a"] == 9000 + 0, "its report counts our own too"


@pytest.mark.parametrize("skew_ms", [-3_600_000.0, 10_000.0, 3_600_000.0])
def test_a_worker_whose_clock_is_wrong_is_corrected_by_ours(skew_ms: float) -> None:
    ledger = Ledger()
    at = 10_000_000.0
    ledger.seen(replace(_worker("a", at=at), reported_ms=at + skew_ms))
    ledger.add("g", "a", 300, at + 100)
    worker = replace(_worker("a", load=300, at=at + 1000), reported_ms=at + 1000 + skew_ms)
    ledger.seen(worker)
    assert ledger.load(worker) == 300, "the report of after the dispatch has it"
    assert not ledger.stale("a")


@pytest.mark.parametrize(
    ("said", "believed"),
    [
        ({"load_tokens": "-5"}, 0),
        ({"load_tokens": "1e300"}, 1_000_000_000),
        ({"load_tokens": "inf"}, 1_000_000_000),
        ({"load_tokens": "12.5"}, 12),
        ({"slots": "1e12"}, 0),
        ({"prefill_ms": "inf", "slot_ms": "-1"}, 0),
    ],
)
def test_a_worker_that_lies_is_believed_within_what_can_be(said: dict[str, str], believed: int) -> None:
    worker = Worker.parse("w", {"models": "[]", "address": "x:1", "slots": "4", **said})
    assert worker.load_tokens == believed
    assert 1 <= worker.slots <= 65_536
    assert 0 <= worker.prefill_ms <= 1000
    assert worker.slot_ms >= 0


@pytest.mark.parametrize("said", [{"load_tokens": "nan"}, {"slots": "four"}, {"reported_ms": "x"}])
def test_a_lease_that_is_none_is_refused(said: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        Worker.parse("w", {"models": "[]", "address": "x:1", "slots": "4", **said})


def test_a_worker_whose_kv_is_full_takes_nothing_until_it_says_otherwise() -> None:
    full = replace(_worker("a"), kv_full=True)
    world = _World(full, _worker("b"))
    pool = world.fleet.pool("m")
    assert pool is not None
    assert (pool["a"].takes, pool["a"].kv_full, pool["b"].takes) == (False, True, True)
    assert pool.any_open, "it is up, and may be waited for"
    world.look(_worker("a", at=1500.0), _worker("b", at=1500.0), now=1500.0)
    pool = world.fleet.pool("m")
    assert pool is not None
    assert pool["a"].takes


def test_the_weight_of_a_worker_follows_its_limit_and_the_homes_of_sessions_do_not() -> None:
    world = _World(replace(_worker("a", tasks=3), slot_ms=800.0), _worker("b"))
    pool = world.fleet.pool("m")
    assert pool is not None
    sizes = pool.sizes
    assert (pool["a"].weight, pool.weights, pool["a"].wait_ms) == (4, 8, 0.0)
    # It gives its engine two at a time now: half the weight, a queue that is full sooner, a wait.
    world.look(replace(_worker("a", tasks=3, at=1500.0), slot_ms=800.0, limit=2), _worker("b"), now=1500)
    assert (pool["a"].weight, pool.weights, pool["a"].wait_ms) == (2, 6, 800.0)
    assert pool.sizes is sizes, "an order of homes that is made anew"
    world.look(replace(_worker("a", tasks=4, at=2000.0), limit=2), _worker("b"), now=2000)
    assert pool["a"].full
    # Another engine is another size.
    world.look(replace(_worker("a"), slots=8), _worker("b"), now=2500)
    assert pool.sizes == {"a": 8, "b": 4}


def test_a_limit_is_believed_within_what_can_be_and_without_one_slots_count() -> None:
    said = {"models": "[]", "address": "x:1", "slots": "4"}
    assert Worker.parse("w", said).places == 4
    assert Worker.parse("w", {**said, "limit": "2"}).places == 2
    assert Worker.parse("w", {**said, "limit": "-7"}).places == 4
    assert Worker.parse("w", {**said, "limit": "1e30"}).places == 65_536
