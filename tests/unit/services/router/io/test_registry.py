"""The registry when its source answers, changes and is away."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from services.router.core.fleet import Fleet
from services.router.core.ledger import Ledger
from services.router.core.strategy import StrategyOptions, make_strategy
from services.router.core.worker import ServedModel, Worker
from services.router.io.registry import Registry
from services.router.metrics import RouterMetrics
from streamway.errors import StoreUnavailable


class Clock:
    """Time by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def unix(self) -> float:
        return self.now


class Source:
    """A WorkerSource that says what it is told to."""

    def __init__(self, *workers: Worker) -> None:
        self.workers: list[Worker] | None = list(workers)

    async def read(self) -> list[Worker]:
        if self.workers is None:
            raise StoreUnavailable
        return self.workers


class Answers:
    """A WorkerProbe that knows who is there."""

    def __init__(self, *there: str) -> None:
        self.there = set(there)
        self.asked: list[str] = []

    async def answers(self, address: str) -> bool:
        self.asked.append(address)
        return address in self.there


def _worker(id_: str, model: str = "m", **changes: bool) -> Worker:
    return Worker(id_, f"{id_}:1", (ServedModel(model, 0),), 4, **changes)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def _registry(source: Source, clock: Clock, probe: Answers | None = None) -> Registry:
    ledger, strategy = Ledger(5000), make_strategy("ring", StrategyOptions())
    metrics = RouterMetrics(CollectorRegistry())
    fleet = Fleet(ledger, 8, 0.125)
    return Registry(source, ledger, fleet, strategy, probe or Answers(), clock, metrics, poll_s=0.5, keep_s=10)


def _open(registry: Registry, model: str = "m") -> dict[str, bool]:
    pool = registry.pool(model)
    return {id_: candidate.open for id_, candidate in pool.items()} if pool is not None else {}


async def test_candidates_are_the_workers_of_a_model(clock: Clock) -> None:
    registry = _registry(Source(_worker("a"), _worker("b", draining=True), _worker("c", "other")), clock)
    assert not registry.readable
    await registry.refresh()
    assert registry.readable
    assert _open(registry) == {"a": True, "b": False}
    assert _open(registry, "other") == {"c": True}


async def test_while_nothing_can_be_read_reports_grow_old_and_it_shows(clock: Clock) -> None:
    source = Source(_worker("a"), _worker("b"))
    registry = _registry(source, clock)
    source.workers = [replace(worker, polled_ms=clock.now * 1000) for worker in source.workers or []]
    await registry.refresh()
    assert registry._metrics.stale_reports._value.get() == 0
    source.workers = None
    clock.now += 5.5
    await registry.refresh()
    assert registry._metrics.stale_reports._value.get() == 2
    assert registry._metrics.report_age._value.get() == pytest.approx(5.5)
    assert _open(registry) == {"a": True, "b": True}


async def test_two_more_workers_are_asked_for_while_one_is_short_of_memory(clock: Clock) -> None:
    source = Source(_worker("a"), replace(_worker("b"), memory_pressed=True))
    registry = _registry(source, clock)
    await registry.refresh()
    assert registry._metrics.workers_wanted._value.get() == 4
    source.workers = [_worker("a"), _worker("b")]
    await registry.refresh()
    assert registry._metrics.workers_wanted._value.get() == 2


async def test_the_last_known_workers_count_for_a_while_and_then_as_long_as_they_answer(clock: Clock) -> None:
    source, probe = Source(_worker("a"), _worker("b")), Answers("b:1")
    registry = _registry(source, clock, probe)
    await registry.refresh()
    source.workers = None
    clock.now += 9.9
    await registry.refresh()
    assert not registry.readable
    assert registry.worker("a") is not None
    assert probe.asked == []
    clock.now += 0.2
    await registry.refresh()
    assert [worker.id for worker in registry.all()] == ["b"]
    clock.now += 5
    await registry.refresh()
    assert len(probe.asked) == 2, "not at each look"
    probe.there.clear()
    clock.now += 6
    await registry.refresh()
    assert registry.all() == []
    source.workers = [_worker("a")]
    await registry.refresh()
    assert registry.readable
    assert registry.worker("a") is not None


async def test_a_model_whose_workers_vanished_is_out_of_order_and_not_unknown(clock: Clock) -> None:
    source = Source(_worker("a"), _worker("c", "other"))
    registry = _registry(source, clock)
    assert registry.served_lately("anything"), "as long as no worker is known nobody can tell"
    await registry.refresh()
    source.workers = [_worker("c", "other")]
    await registry.refresh()
    assert registry.pool("m") is None
    assert registry.served_lately("m")
    assert not registry.served_lately("gpt-9")
    clock.now += 301
    await registry.refresh()
    assert not registry.served_lately("m")


async def test_a_worker_that_was_found_silent_gets_nothing_until_it_renews_its_lease(clock: Clock) -> None:
    source = Source(_worker("a"), _worker("b"))
    registry = _registry(source, clock)
    await registry.refresh()
    registry.suspect("a")
    assert registry.reachable("a") is None
    assert registry.worker("a") is not None
    assert _open(registry) == {"a": False, "b": True}
    await registry.refresh()
    assert registry.reachable("a") is None
    source.workers = [replace(_worker("a"), reported_ms=5.0), _worker("b")]
    await registry.refresh()
    assert registry.reachable("a") is not None
    assert _open(registry)["a"]
