"""The one flush timer of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from services.inference_adapter.core.flush_window import FlushWindow
from services.inference_adapter.metrics import AdapterMetrics

_log = structlog.get_logger("adapter")


class Flushable(Protocol):
    """A generation, as the flusher sees it."""

    def flush(self) -> tuple[int, int]:
        """Passes on what has gathered; returns how many token units and events that were."""
        ...


class Source(Protocol):
    """Where tokens wait to be read at a tick."""

    def drive(self, begun: Callable[[], None]) -> None:
        """Has `begun` called when there is something to read at each tick."""
        ...

    @property
    def wanted(self) -> bool:
        """There still is."""
        ...

    def read(self) -> bool:
        """Takes what has come, or a good part of it; whether there may be more."""
        ...


class Flusher:
    """Flushes what was marked at most `window.seconds` ago, all in one go, and with it what `source` has at the tick.

    One timer for all generations: at a thousand streams a timer for each would cost more than the tokens.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        window: FlushWindow,
        metrics: AdapterMetrics,
        source: Source | None = None,
    ) -> None:
        self._loop = loop
        self._window = window
        self._due = 0.0
        self._metrics = metrics
        self._marked: list[Flushable] = []
        self._timer: asyncio.Handle | None = None
        self._source = source
        if source is not None:
            source.drive(self._arm)

    def mark(self, item: Flushable) -> None:
        """Has `item` flushed at the next tick. An item marks itself once until it is flushed by a tick."""
        self._marked.append(item)
        self._arm()

    def now(self, item: Flushable) -> None:
        """Flushes one item at once: its first token, a full batch, its end."""
        self._metrics.made(*item.flush())

    def close(self) -> None:
        """Stops the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is None:
            self._due = self._loop.time() + self._window.seconds
            self._timer = self._loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        self._window.ticked(self._loop.time() - self._due)
        self._take()

    def _take(self) -> None:
        """Reads and flushes; again, after a turn of the loop, while there is more to read."""
        more = self._source is not None and self._source.read()
        self._timer = self._loop.call_soon(self._take) if more else None
        marked, self._marked = self._marked, []
        units = events = 0
        for item in marked:
            try:
                of_item = item.flush()
                units += of_item[0]
                events += of_item[1]
            except Exception:  # noqa: BLE001 — one generation's fault must not stop the tick of the others
                _log.exception("flush_failed")
        if marked:  # a tick may have found nothing to read
            self._metrics.flushed(len(marked), units)
            self._metrics.made(units, events)
        if self._source is not None and self._source.wanted:
            self._arm()
