"""Workers as decisions see them, between two looks at their leases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.router.core.fleet import Fleet
from services.router.core.ledger import Ledger
from services.router.core.queues import EVERY_LANE
from services.router.core.worker import ServedModel, Worker
from streamway.valkey.keys import CLASSES


def _worker(id_: str, *models: str, load: int = 0, tasks: int = 0, at: float = 1000.0) -> Worker:
    served = tuple(ServedModel(model, 0) for model in models or ("m",))
    return Worker(id_, "x:1", served, 4, load_tokens=load, reported_ms=at, lanes=(tasks, 0, 0, 0), polled_ms=at)


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
    assert (pool["a"].full, pool["b"].full) == ({"gold"}, frozenset())


def test_each_lane_has_a_queue_of_its_own() -> None:
    """Four slots, all of them gold's; twice a depth of two may wait in each lane, half of that where breakers are ignored."""
    ledger = Ledger()
    fleet = Fleet(ledger, None, 0.125)
    worker = replace(_worker("a"), preload_depth=2, lanes=(4, 0, 3, 1), running=(4, 0, 0, 0), busy=4)

    def full() -> tuple[set[str], set[str]]:
        pool = fleet.pool("m")
        assert pool is not None
        return set(pool["a"].full), {lane for lane in CLASSES if "a" in fleet.crowded(lane)}

    ledger.seen(worker)
    fleet.adopt([worker])
    assert full() == (set(), {"bronze"})
    ledger.add("b", "a", 10, 1100, "bronze")
    assert full() == ({"bronze"}, {"bronze"})
    for number in range(3):
        ledger.add(f"bulk {number}", "a", 10, 1100, "bulk")
    assert full() == ({"bronze", "bulk"}, {"bronze", "bulk"})
    ledger.settle("b")
    assert full() == ({"bulk"}, {"bronze", "bulk"})


def test_a_backlog_of_others_takes_no_place_from_who_is_urgent() -> None:
    """Whatever waits in the lanes below and in bulk, a lane that is not full itself takes the next task."""
    world = _World(
        replace(_worker("a"), lanes=(4, 90, 90, 90), running=(4, 0, 0, 0), busy=4, preload_depth=1),
        replace(_worker("b"), lanes=(6, 0, 0, 0), running=(4, 0, 0, 0), busy=4, preload_depth=1),
    )
    pool = world.fleet.pool("m")
    assert pool is not None
    found = pool.least("gold")
    assert found is not None
    assert found.worker == "a"
    assert pool.least("silver") == pool.least("bulk") == pool["b"]


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
    assert (pool["a"].full, pool["a"].kv_full, pool["b"].full) == (EVERY_LANE, True, frozenset())
    assert pool.any_open, "it is up, and may be waited for"
    world.look(_worker("a", at=1500.0), _worker("b", at=1500.0), now=1500.0)
    pool = world.fleet.pool("m")
    assert pool is not None
    assert pool["a"].takes("gold")


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


def test_slots_kept_ahead_are_counted_down_by_urgent_work_and_up_by_what_ends() -> None:
    worker = replace(_worker("a"), slots=16, lanes=(2, 0, 14, 0))
    world = _World(worker)

    def ahead() -> int | None:
        pool = world.fleet.pool("m")
        assert pool is not None
        return pool["a"].ahead

    assert ahead() == 2
    for number in range(3):
        world.ledger.add(f"g{number}", "a", 10, 1100)
    world.ledger.add("b", "a", 10, 1100, "bronze")
    assert ahead() == -1
    world.ledger.settle("b")
    assert ahead() == 0
    for number in range(3):
        world.ledger.settle(f"g{number}")
    assert ahead() == 2
    # Nothing is kept where all are alike, nor while a slot is idle for everybody, nor of a few slots.
    world.look(replace(worker, lanes=(20, 0, 0, 0)))
    assert ahead() is None
    world.look(replace(worker, lanes=(2, 0, 9, 0)))
    assert ahead() is None
    world.look(replace(worker, slots=4))
    assert ahead() is None
