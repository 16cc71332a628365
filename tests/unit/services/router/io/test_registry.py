"""The registry when its source answers, changes and is away."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from redis.exceptions import ConnectionError

from services.router.core.ledger import Ledger
from services.router.core.worker import ServedModel, Worker
from services.router.io.registry import Registry
from services.router.metrics import RouterMetrics


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
            raise ConnectionError("away")
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
    metrics = RouterMetrics(CollectorRegistry())
    return Registry(
        source, Ledger(), probe or Answers(), clock, metrics, poll_s=0.5, keep_s=10, vnodes=16, queue_limit=8
    )


async def test_candidates_are_the_workers_of_a_model(clock: Clock) -> None:
    registry = _registry(Source(_worker("a"), _worker("b", draining=True), _worker("c", "other")), clock)
    assert not registry.readable
    await registry.refresh()
    assert registry.readable
    candidates = registry.candidates("m")
    assert {id_: candidate.open for id_, candidate in candidates.items()} == {"a": True, "b": False}
    assert registry.ring.workers == {"a", "b", "c"}


async def test_the_ring_is_made_anew_only_when_the_set_changes(clock: Clock) -> None:
    source = Source(_worker("a"), _worker("b"))
    registry = _registry(source, clock)
    await registry.refresh()
    ring = registry.ring
    source.workers = [_worker("b"), _worker("a", healthy=False)]
    await registry.refresh()
    assert registry.ring is ring
    source.workers = [_worker("a")]
    await registry.refresh()
    assert registry.ring.workers == {"a"}


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
    assert registry.candidates("m") == {}
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
    assert {id_: candidate.open for id_, candidate in registry.candidates("m").items()} == {"a": False, "b": True}
    await registry.refresh()
    assert registry.reachable("a") is None
    source.workers = [replace(_worker("a"), reported_ms=5.0), _worker("b")]
    await registry.refresh()
    assert registry.reachable("a") is not None
    assert registry.candidates("m")["a"].open
