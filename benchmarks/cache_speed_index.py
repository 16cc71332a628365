"""Searching one context of many entries, in the cache's own way: off the loop, candidates scored by their whole vectors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import psutil

from services.cache.core.semantic.flat import scan
from services.cache.core.semantic.kinds import IndexLimits, Kind
from services.cache.core.semantic.partition import View
from services.cache.core.semantic.partitions import Partitions
from services.cache.io import indexes
from services.cache.io.search_thread import SearchThread
from services.cache.io.searching import Searching
from services.cache.io.upkeep import Upkeep
from streamway.runtime.tasks import TaskScope
from streamway.runtime.threads import in_thread

DIMS: Final = 384
MOST: Final = 5
# Entries a context gets in a second while it is searched.
_ADDED_PER_S: Final = 20
_MB: Final = 1024**2

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class IndexCase:
    """Times in ms, `recall` of the five nearest; `writing`: while entries come and go."""

    kind: str
    entries: int
    fill_s: float
    build_s: float
    vectors_mb: float
    index_mb: float
    rss_mb: float
    recall: float
    p50: float
    p99: float
    cpu_p50: float
    cpu_p99: float
    writing_p50: float
    writing_p99: float
    lag_p50: float
    lag_p99: float
    lag_most: float


class Clusters:
    """Vectors as an encoder gives them: questions in groups of 20 about one thing, all of them in one half of space."""

    def __init__(self, entries: int, seed: int = 1) -> None:
        self._draw = np.random.default_rng(seed)
        centres = self._draw.standard_normal((max(1, entries // 20), DIMS), dtype=np.float32)
        common = self._draw.standard_normal(DIMS, dtype=np.float32)
        self._centres = centres / np.linalg.norm(centres, axis=1, keepdims=True) + 0.5 * common / np.linalg.norm(common)

    def some(self, count: int) -> Vectors:
        """float32[count, DIMS] of unit length."""
        chosen = self._centres[self._draw.integers(0, len(self._centres), count)]
        vectors = chosen + (0.5 / DIMS**0.5) * self._draw.standard_normal((count, DIMS), dtype=np.float32)
        made: Vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return made


class Lag:
    """How late a task of the event loop is that wakes every two milliseconds; in ms."""

    def __init__(self) -> None:
        self.late_ms: list[float] = []

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.002)
            self.late_ms.append((time.perf_counter() - began) * 1000 - 2)

    def percentiles(self) -> tuple[float, float, float]:
        """p50, p99 and the most, and begins anew."""
        late, self.late_ms = self.late_ms or [0.0], []
        return percentile(late, 0.5), percentile(late, 0.99), max(late)


def percentile(times: list[float], share: float) -> float:
    """Of unsorted numbers."""
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


@asynccontextmanager
async def _lagging() -> AsyncIterator[Lag]:
    lag = Lag()
    async with TaskScope("lag") as scope:
        scope.spawn(lag.run(), "lag")
        yield lag


async def measure_index(kind: Kind, entries: int, questions: int, told: Callable[[str], None]) -> IndexCase:
    """One kind, in one context of so many entries."""
    clusters, partitions, thread = Clusters(entries), Partitions(), SearchThread()
    rss_before = psutil.Process().memory_info().rss
    began = time.perf_counter()
    for start in range(0, entries, 10_000):
        for number, vector in enumerate(clusters.some(min(10_000, entries - start)), start):
            partitions.add(b"p", str(number), "what?", vector)
    fill_s = time.perf_counter() - began
    partition = partitions.partition(b"p")
    assert partition is not None
    async with TaskScope("benchmark") as scope, _lagging() as lag:
        searching = Searching(partitions, thread, scope)
        began = time.perf_counter()
        if kind is not Kind.FLAT:
            told(f"{kind.value}: building an index of {entries:,} …")
            view, watch = partition.view(), partition.watch()
            built = await in_thread(lambda: indexes.build(kind, partition.index.live(), view.rows, lambda: False))
            partition.install(built, watch)
        build_s = time.perf_counter() - began
        asked = clusters.some(questions)
        recall = await _recall(searching, asked[:200])
        lag.percentiles()
        quiet = await _search(searching, asked)
        lags = lag.percentiles()
        cpu = await thread.run(lambda: [_cpu(partition.view(), vector[None]) for vector in asked])
        # As it is in the cache: what comes goes into the index between two searches.
        fixed = IndexLimits(
            0 if kind is not Kind.FLAT else entries * 2, 0 if kind is Kind.IVF_PQ else entries * 2, 2**62
        )
        Upkeep(partitions, thread, indexes.build, fixed, scope)
        writer = scope.spawn(_write(partitions, clusters, entries), "write")
        writing = await _search(searching, asked)
        writer.cancel()
        thread.close()
        return IndexCase(
            *(kind.value, entries, fill_s, build_s),
            vectors_mb=partitions.size_bytes / _MB,
            index_mb=sum(partitions.index_bytes.values()) / _MB,
            rss_mb=(psutil.Process().memory_info().rss - rss_before) / _MB,
            recall=recall,
            p50=percentile(quiet, 0.5),
            p99=percentile(quiet, 0.99),
            cpu_p50=percentile(cpu, 0.5),
            cpu_p99=percentile(cpu, 0.99),
            writing_p50=percentile(writing, 0.5),
            writing_p99=percentile(writing, 0.99),
            lag_p50=lags[0],
            lag_p99=lags[1],
            lag_most=lags[2],
        )


async def _search(searching: Searching, asked: Vectors) -> list[float]:
    times: list[float] = []
    for vector in asked:
        began = time.perf_counter()
        found = await searching.nearest(b"p", vector, MOST)
        times.append((time.perf_counter() - began) * 1000)
        assert len(found) == MOST
        # Questions come one after the other, and not at once.
        await asyncio.sleep(0.005)
    return times


def _cpu(view: View, vector: Vectors) -> float:
    """Of the search thread alone: what others do on this machine is not in it."""
    began = time.thread_time()
    view.nearest(vector, MOST)
    return (time.thread_time() - began) * 1000


async def _recall(searching: Searching, asked: Vectors) -> float:
    partition = searching.partitions.partition(b"p")
    assert partition is not None
    exact = scan(partition.view().blocks, asked[:1], MOST)
    for start in range(1, len(asked), 8):
        exact += scan(partition.view().blocks, asked[start : start + 8], MOST)
    hits = 0
    for vector, slots in zip(asked, exact, strict=True):
        best = {each.entry for each in partition.neighbours(slots, vector, MOST)}
        hits += len(best & {each.entry for each in await searching.nearest(b"p", vector, MOST)})
    return hits / (MOST * len(asked))


async def _write(partitions: Partitions, clusters: Clusters, entries: int) -> None:
    for number in range(10**9):
        partitions.add(b"p", f"new-{number}", "what?", clusters.some(1)[0])
        partitions.remove(str(number % entries))
        await asyncio.sleep(1 / _ADDED_PER_S)


def index_table(cases: list[IndexCase]) -> list[str]:
    """Markdown."""
    head = (
        "| index | entries | filled in s | built in s | vectors MB | index MB | process + MB | recall@5 | search p50 / p99 ms"
        " | its CPU p50 / p99 ms"
        " | while entries come and go p50 / p99 ms | loop lag p50 / p99 / most ms |"
    )
    lines = [head, "|---" * 12 + "|"]
    lines += [
        f"| {case.kind} | {case.entries:,} | {case.fill_s:.1f} | {case.build_s:.0f} | {case.vectors_mb:,.0f}"
        f" | {case.index_mb:,.0f} | {case.rss_mb:,.0f} | {case.recall:.3f} | {case.p50:.2f} / {case.p99:.2f}"
        f" | {case.cpu_p50:.2f} / {case.cpu_p99:.2f}"
        f" | {case.writing_p50:.2f} / {case.writing_p99:.2f}"
        f" | {case.lag_p50:.2f} / {case.lag_p99:.2f} / {case.lag_most:.1f} |"
        for case in cases
    ]
    return lines


def as_row(case: IndexCase) -> dict[str, Any]:
    """For the JSON file."""
    return asdict(case)
