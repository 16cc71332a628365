"""Loads between two reports."""

from __future__ import annotations

from services.router.core.ledger import Ledger
from services.router.core.ring import Candidate, Ring, bound, select
from services.router.core.worker import Worker


def _worker(id_: str = "w", *, load: int = 0, reported: float = 0, tasks: int = 0, polled: float = 0) -> Worker:
    return Worker(id_, "x:1", (), 4, load_tokens=load, reported_ms=reported, tasks=tasks, polled_ms=polled)


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


def test_e3_two_hundred_requests_on_frozen_reports_stay_within_the_bound() -> None:
    ledger, names = Ledger(), [f"w{number}" for number in range(4)]
    ring = Ring(names)
    workers = {name: _worker(name, load=0, reported=1000, polled=1000) for name in names}
    for worker in workers.values():
        ledger.seen(worker)
    for number in range(200):
        loads = {name: ledger.load(worker) for name, worker in workers.items()}
        candidates = {name: Candidate(name, 4, load) for name, load in loads.items()}
        decision = select(ring, f"session-{number % 7}", 300, candidates)
        assert loads[decision.worker] + 300 <= max(
            bound(300, sum(loads.values()), 1 / 4, 1.25, 4), min(loads.values()) + 300
        )
        ledger.add(f"g{number}", decision.worker, 300, 1500 + number)
    totals = [ledger.load(worker) for worker in workers.values()]
    assert sum(totals) == 200 * 300
    assert max(totals) <= 1.25 * sum(totals) / 4 + 300
