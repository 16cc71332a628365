"""One timer that reads what waits for it and flushes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry

from services.inference_adapter.core.flush_window import FlushWindow
from services.inference_adapter.io.fanout.flusher import Flusher
from services.inference_adapter.metrics import AdapterMetrics


class Item:
    def __init__(self) -> None:
        self.flushed_at: list[float] = []

    def flush(self) -> tuple[int, int]:
        self.flushed_at.append(time.monotonic())
        return 1, 1


class Waiting:
    """Brings one item at each read, as long as it has some."""

    def __init__(self, reads: list[Callable[[], None]], at_once: int = 1) -> None:
        self._reads, self._at_once = reads, at_once
        self.read_at: list[float] = []
        self.begun: Callable[[], None] = lambda: None

    def drive(self, begun: Callable[[], None]) -> None:
        self.begun = begun

    @property
    def wanted(self) -> bool:
        return bool(self._reads)

    def read(self) -> bool:
        self.read_at.append(time.monotonic())
        if self._reads:
            self._reads.pop(0)()
        return bool(self._reads) and len(self._reads) % self._at_once != 0


def flusher(source: Waiting | None = None, window_s: float = 0.02) -> Flusher:
    window = FlushWindow(window_s, window_s)
    return Flusher(asyncio.get_running_loop(), window, AdapterMetrics(CollectorRegistry()), source)


async def test_what_is_marked_is_flushed_after_the_window() -> None:
    item, began = Item(), time.monotonic()
    flusher().mark(item)
    await asyncio.sleep(0.2)
    assert len(item.flushed_at) == 1
    assert item.flushed_at[0] - began >= 0.02


async def test_what_a_tick_reads_it_flushes_too_and_ticks_go_on_while_there_is_a_source() -> None:
    items = [Item() for _ in range(3)]
    made: list[Flusher] = []
    source = Waiting([lambda one=item: made[0].mark(one) for item in items])  # type: ignore[misc]
    made.append(flusher(source))
    source.begun()
    await asyncio.sleep(0.5)
    assert [len(item.flushed_at) for item in items] == [1, 1, 1]
    for item, read_at in zip(items, source.read_at, strict=True):
        assert item.flushed_at[0] - read_at < 0.01  # not a window later
    gaps = [later - earlier for earlier, later in zip(source.read_at, source.read_at[1:], strict=False)]
    assert min(gaps) >= 0.019


async def test_what_is_too_much_for_one_turn_is_read_in_the_next_ones_and_not_a_window_later() -> None:
    items = [Item() for _ in range(4)]
    made: list[Flusher] = []
    source = Waiting([lambda one=item: made[0].mark(one) for item in items], at_once=4)  # type: ignore[misc]
    made.append(flusher(source, window_s=0.2))
    source.begun()
    await asyncio.sleep(0.3)
    assert [len(item.flushed_at) for item in items] == [1, 1, 1, 1]
    assert source.read_at[3] - source.read_at[0] < 0.1


async def test_once_closed_nothing_ticks() -> None:
    source = Waiting([lambda: None])
    made = flusher(source)
    source.begun()
    made.close()
    await asyncio.sleep(0.1)
    assert source.read_at == []
