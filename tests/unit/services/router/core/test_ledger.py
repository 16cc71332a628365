"""Loads between two reports."""

from __future__ import annotations

import pytest

from services.router.core.bounded import bound
from services.router.core.decision import Wanted
from services.router.core.fleet import Fleet
from services.router.core.ledger import Ledger
from services.router.core.strategy import StrategyOptions, make_strategy
from services.router.core.worker import ServedModel, Worker


def _worker(id_: str = "w", *, load: int = 0, reported: float = 0, tasks: int = 0, polled: float = 0) -> Worker:
    return Worker(id_, "x:1", (), 4, load_tokens=load, reported_ms=reported, lanes=(tasks, 0, 0, 0), polled_ms=polled)


def test_what_was_dispatched_since_the_report_is_added() -> None:
    ledger, worker = Ledger(), _worker(load=500, reported=1000, tasks=2, polled=1100)
    ledger.seen(worker)
    ledger.add("g", "w", 300, 1200)
    assert ledger.load(worker) == 800
    assert ledger.tasks(worker) == 3


def test_a_report_that_counts_a_dispatch_replaces_it() -> None:
    ledger = Ledger()
    ledger.seen(_worker(reported=1000, polled=1000))
    ledger.add("g", "w", 300, 1200)
    newer = _worker(load=320, reported=2000, tasks=1, polled=2000)
    ledger.seen(newer)
    assert ledger.load(newer) == 320
    assert ledger.tasks(newer) == 1


def test_what_ended_since_the_report_is_taken_off() -> None:
    ledger = Ledger()
    ledger.add("old", "w", 300, 500)
    worker = _worker(load=700, reported=1000, tasks=2, polled=1000)
    ledger.seen(worker)
    assert ledger.settle("old")
    assert not ledger.settle("old")
    assert ledger.load(worker) == 400
    assert ledger.tasks(worker) == 1
    ledger.add("new", "w", 50, 1500)
    ledger.settle("new")
    assert ledger.load(worker) == 400
    assert len(ledger) == 0


def test_a_load_is_never_less_than_what_we_have_there() -> None:
    ledger = Ledger()
    ledger.add("g", "w", 300, 500)
    worker = _worker(load=0, reported=1000, tasks=0, polled=1000)  # it has not read its lane yet
    ledger.seen(worker)
    assert ledger.load(worker) == 300
    assert ledger.tasks(worker) == 1


def test_an_unknown_worker_has_what_it_reports() -> None:
    worker = _worker(load=7, tasks=3)
    assert (Ledger().load(worker), Ledger().tasks(worker), Ledger().rate(["w"])) == (7, 3, 0)


def test_the_rate_follows_ends() -> None:
    ledger = Ledger()
    for look in range(40):
        ledger.seen(_worker(polled=1000 + look * 500))
        for number in range(5):
            ledger.add(f"{look}-{number}", "w", 1, 1000 + look * 500)
            ledger.settle(f"{look}-{number}")
    assert 9.9 < ledger.rate(["w", "gone"]) < 10.1


def test_gone_workers_are_forgotten_when_nothing_is_left_there() -> None:
    ledger = Ledger()
    ledger.add("g", "busy", 1, 0)
    ledger.seen(_worker("idle"))
    ledger.keep_only(set())
    ledger.settle("g")
    ledger.keep_only(set())
    assert ledger.rate(["busy", "idle"]) == 0


@pytest.mark.parametrize("routers", [1, 3])
def test_e3_two_hundred_requests_on_frozen_reports_stay_within_the_bound(routers: int) -> None:
    """Each router corrects for its own dispatches and sees nothing of the others'."""
    names = [f"w{number}" for number in range(4)]
    workers = [Worker(name, "x:1", (ServedModel("m", 0),), 64, reported_ms=1000, polled_ms=1000) for name in names]
    ledgers = [Ledger() for _ in range(routers)]
    fleets = [Fleet(ledger, 1000, 0.125) for ledger in ledgers]
    strategies = [make_strategy("ring", StrategyOptions()) for _ in range(routers)]
    for ledger, fleet in zip(ledgers, fleets, strict=True):
        for worker in workers:
            ledger.seen(worker)
        fleet.adopt(workers)
    for number in range(200):
        turn = number % routers
        pool = fleets[turn].pool("m")
        assert pool is not None
        wanted = Wanted("m", f"session-{number % 7}", 100, 200)
        decision = strategies[turn].choose(wanted, pool, number / 20)
        before, least = pool[decision.worker].load, min(one.load for one in pool.values())
        limit = bound(decision.tokens, wanted.tokens, pool.total, 1 / 4, 1.25, 4)
        assert before + decision.tokens <= max(limit, least + decision.tokens)
        strategies[turn].placed(wanted, decision, number / 20)
        ledgers[turn].add(f"g{number}", decision.worker, decision.tokens, 1500 + 50 * number)
    totals = [sum(ledger.own(name) for ledger in ledgers) for name in names]
    assert max(totals) <= 1.25 * sum(totals) / 4 + routers * 300


def test_tasks_are_counted_by_lane_between_two_looks() -> None:
    ledger = Ledger()
    worker = Worker("w", "x:1", (), 4, reported_ms=1000, lanes=(1, 0, 2, 0), polled_ms=1000)
    ledger.add("old", "w", 10, 500, "bronze")
    ledger.seen(worker)
    ledger.add("new", "w", 10, 1100, "bulk")
    assert ledger.lanes(worker) == (1, 0, 2, 1)
    ledger.settle("old")
    assert ledger.lanes(worker) == (1, 0, 1, 1)
    assert ledger.tasks(worker) == 3
    ledger.settle("new")
    assert ledger.lanes(worker) == (1, 0, 1, 0)
    # The next look has what has happened; what was dispatched after it is added again.
    ledger.add("newer", "w", 10, 1400, "silver")
    later = Worker("w", "x:1", (), 4, reported_ms=1000, lanes=(1, 0, 1, 0), polled_ms=1300)
    ledger.seen(later)
    assert ledger.lanes(later) == (1, 1, 1, 0)


@pytest.mark.parametrize("jump_ms", [-3_600_000.0, 3_600_000.0])
def test_a_clock_of_ours_that_jumps_counts_nothing_twice_and_ends_nothing(jump_ms: float) -> None:
    """The worker's clock does not jump: its reports look an hour off from then on."""
    ledger = Ledger()

    def look(at: float, ours: float, load: int, tasks: int) -> Worker:
        worker = _worker(load=load, reported=at, tasks=tasks, polled=ours)
        ledger.seen(worker)
        ledger.age(ours)
        return worker

    start = 10_000_000.0
    look(start, start, 0, 0)
    ledger.add("before", "w", 300, start + 100)
    look(start + 500, start + 500, 300, 1)
    after = start + 1000 + jump_ms
    worker = look(start + 1000, after, 300, 1)
    assert (ledger.load(worker), ledger.tasks(worker)) == (300, 1)
    ledger.add("later", "w", 50, after + 100)
    assert (ledger.load(worker), ledger.tasks(worker)) == (350, 2)
    worker = look(start + 1500, after + 500, 350, 2)
    assert (ledger.load(worker), ledger.tasks(worker)) == (350, 2)
    ledger.settle("before")
    ledger.settle("later")
    assert (ledger.load(worker), ledger.tasks(worker)) == (0, 0)
    worker = look(start + 2000, after + 1000, 0, 0)
    assert (ledger.load(worker), ledger.tasks(worker), ledger.stale("w")) == (0, 0, False)
    assert 0 <= ledger.rate(["w"]) < 10
