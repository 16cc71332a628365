"""One timer that reads what waits for it and flushes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

from prometheus_client import CollectorRegistry

from services.inference_adapter.core.flush_window import FlushWindow
from services.inference_adapter.io.fanout.flusher import Flusher
from services.inference_adapter.metrics import AdapterMetrics


class Item:
    """Writes down when it is flushed."""

    def __init__(self, told: list[str]) -> None:
        self._told = told

    def flush(self) -> tuple[int, int]:
        self._told.append("flushed")
        return 1, 1


class Waiting:
    """Brings one item at each read, as long as it has some, and notes each read. `more`: it says when it has more."""

    def __init__(self, items: int, *, more: bool = False) -> None:
        self.told: list[str] = []
        self._left, self._more = items, more
        self.begun: Callable[[], None] = lambda: None
        self.mark: Callable[[Item], None] = lambda item: None
        self.read_at: list[float] = []

    def drive(self, begun: Callable[[], None]) -> None:
        self.begun = begun

    @property
    def wanted(self) -> bool:
        return self._left > 0

    def read(self) -> bool:
        self.told.append("read")
        self.read_at.append(asyncio.get_running_loop().time())
        if self._left:
            self._left -= 1
            self.mark(Item(self.told))
        return self._more and self._left > 0


def flusher(window: FlushWindow, source: Waiting | None = None) -> tuple[Flusher, CollectorRegistry]:
    registry = CollectorRegistry()
    made = Flusher(asyncio.get_running_loop(), window, AdapterMetrics(registry), source)
    if source is not None:
        source.mark = made.mark
    return made, registry


async def has(told: list[str], number: int) -> None:
    async with asyncio.timeout(10):
        while len(told) < number:
            await asyncio.sleep(0.001)


async def test_what_is_marked_is_flushed_after_the_window() -> None:
    told: list[str] = []
    began = asyncio.get_running_loop().time()
    made, _ = flusher(FlushWindow(0.02, 0.02))
    made.mark(Item(told))
    await has(told, 1)
    assert asyncio.get_running_loop().time() - began >= 0.019
    await asyncio.sleep(0.1)
    assert told == ["flushed"]


async def test_what_a_tick_reads_it_flushes_too_and_ticks_go_on_while_there_is_a_source() -> None:
    source = Waiting(3)
    flusher(FlushWindow(0.02, 0.02), source)
    source.begun()
    await has(source.told, 6)
    await asyncio.sleep(0.1)
    assert source.told == ["read", "flushed"] * 3
    gaps = [later - earlier for earlier, later in pairwise(source.read_at)]
    assert min(gaps) >= 0.019


async def test_what_is_too_much_for_one_turn_is_read_in_the_next_ones_and_not_a_window_later() -> None:
    source, window = Waiting(4, more=True), FlushWindow(0.02, 0.02)
    flusher(window, source)
    source.begun()
    window.seconds = 3600.0  # for whatever would wait from here on
    await has(source.told, 8)
    assert source.told == ["read", "flushed"] * 4


async def test_a_tick_that_finds_nothing_is_no_flush() -> None:
    source = Waiting(0)
    _, registry = flusher(FlushWindow(0.005, 0.005), source)
    before = samples(registry)
    source.begun()
    await has(source.told, 1)
    assert samples(registry) == before


def samples(registry: CollectorRegistry) -> dict[str, float]:
    return {
        f"{sample.name}{sample.labels}": sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if "flush" in sample.name and not sample.name.endswith("_created")
    }


async def test_once_closed_nothing_ticks() -> None:
    source = Waiting(1)
    made, _ = flusher(FlushWindow(0.02, 0.02), source)
    source.begun()
    made.close()
    await asyncio.sleep(0.1)
    assert source.told == []
