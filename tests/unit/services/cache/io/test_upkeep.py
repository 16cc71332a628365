"""Indexes that are built and filled while entries come and go."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from services.cache.core.semantic.kinds import IndexLimits, Kind, index_bytes
from services.cache.core.semantic.partitions import Partitions
from services.cache.io import indexes
from services.cache.io.index_files import IndexFiles
from services.cache.io.search_thread import SearchThread
from services.cache.io.searching import AT_ONCE, Searching
from services.cache.io.upkeep import Upkeep
from streamway.runtime.tasks import TaskScope
from tests.support.soak import rounds

DIMS = 16
TEN_MINUTES_S = 600.0
FLAT_MOST = AT_ONCE + 100
MANY = FLAT_MOST + 400
ROOM = 1024**3


def unit(seed: int) -> np.ndarray:
    vector = np.random.default_rng(seed).standard_normal(DIMS).astype(np.float32)
    return vector / np.linalg.norm(vector)


class World:
    """A cache's vectors with everything that searches and keeps them."""

    def __init__(self, scope: TaskScope) -> None:
        self.scope = scope
        self.partitions = Partitions()
        self.thread = SearchThread()
        self.searching = Searching(self.partitions, self.thread, scope)
        self.builds: list[Kind] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.fails = 0

    def keep(self, limits: IndexLimits, files: IndexFiles | None = None, encoder: str = "e5") -> Upkeep:
        made = (self.partitions, self.thread, self.build, limits, self.scope)
        return Upkeep(*made, files=files, encoder=encoder, every_s=0.005)

    def build(self, kind: Kind, slots: Any, rows: Any, stopped: Callable[[], bool]) -> Any:
        """The real one, that can be held up."""
        self.builds.append(kind)
        while not self.go_on.wait(0.01) and not stopped():
            pass
        if self.fails:
            self.fails -= 1
            raise MemoryError
        return indexes.build(kind, slots, rows, stopped)

    def add(self, first: int, last: int, partition: bytes = b"p") -> None:
        for seed in range(first, last):
            self.partitions.add(partition, f"p{seed}", f"q{seed}?", unit(seed))

    def remove(self, first: int, last: int) -> None:
        for seed in range(first, last):
            self.partitions.remove(f"p{seed}")

    @property
    def kind(self) -> Kind:
        partition = self.partitions.partition(b"p")
        return partition.kind if partition is not None else Kind.FLAT

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not true():
                await asyncio.sleep(0.005)

    async def filled(self) -> None:
        """Everything is in the index."""
        partition = self.partitions.partition(b"p")
        assert partition is not None
        await self.until(lambda: len(partition.fresh(1)) == 0 and not partition.worn)

    async def nearest(self, seed: int) -> str:
        return (await self.searching.nearest(b"p", unit(seed), 5))[0].entry


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with TaskScope("test") as scope:
        world = World(scope)
        yield world
        world.go_on.set()
        world.thread.close()


async def test_a_partition_that_grows_gets_an_index_and_one_that_shrinks_loses_it(world: World) -> None:
    world.keep(IndexLimits(FLAT_MOST, 4000, ROOM))
    world.add(0, FLAT_MOST)
    await asyncio.sleep(0.1)
    assert (world.kind, world.builds) == (Kind.FLAT, [])
    world.add(FLAT_MOST, MANY)
    await world.until(lambda: world.kind is Kind.HNSW)
    assert await world.nearest(77) == "p77"
    world.add(MANY, 4001)
    await world.until(lambda: world.kind is Kind.IVF_PQ)
    assert await world.nearest(4000) == "p4000"
    world.remove(FLAT_MOST // 2 - 10, 4001)
    await world.until(lambda: world.kind is Kind.FLAT)
    assert await world.nearest(3) == "p3"


async def test_where_memory_is_tight_it_is_the_small_one(world: World) -> None:
    world.keep(IndexLimits(FLAT_MOST, 10**6, index_bytes(Kind.HNSW, MANY, DIMS) - 1))
    world.add(0, MANY)
    await world.until(lambda: world.kind is not Kind.FLAT)
    assert world.kind is Kind.IVF_PQ
    assert world.partitions.index_bytes == {Kind.HNSW: 0, Kind.IVF_PQ: index_bytes(Kind.IVF_PQ, MANY, DIMS)}


async def test_what_comes_and_goes_while_an_index_is_built_is_not_lost_and_reads_go_on(world: World) -> None:
    world.keep(IndexLimits(FLAT_MOST, 10**6, ROOM))
    world.go_on.clear()
    world.add(0, MANY)
    await world.until(lambda: bool(world.builds))
    world.remove(0, 200)
    # Into slots that became free, and behind.
    world.add(MANY, MANY + 300)
    assert await world.nearest(1000) == "p1000"
    assert await world.nearest(MANY + 299) == f"p{MANY + 299}"
    world.go_on.set()
    await world.until(lambda: world.kind is Kind.HNSW)
    # At once, and when they are in the index too.
    for _ in range(2):
        for seed in range(MANY, MANY + 300, 23):
            assert await world.nearest(seed) == f"p{seed}"
        for seed in range(0, 200, 13):
            assert await world.nearest(seed) != f"p{seed}"
        await world.filled()


async def test_new_entries_are_found_at_once_and_go_into_the_index(world: World) -> None:
    world.keep(IndexLimits(FLAT_MOST, 10**6, ROOM))
    world.add(0, MANY)
    await world.until(lambda: world.kind is Kind.HNSW)
    world.add(MANY, MANY + 50)
    assert await world.nearest(MANY + 49) == f"p{MANY + 49}"
    await world.filled()
    assert await world.nearest(MANY + 49) == f"p{MANY + 49}"
    assert world.builds == [Kind.HNSW]


async def test_a_quarter_of_tombstones_is_built_anew(world: World) -> None:
    upkeep = world.keep(IndexLimits(FLAT_MOST, 10**6, ROOM))
    world.add(0, 4000)
    await world.until(lambda: world.kind is Kind.HNSW)
    before = world.partitions.index_bytes[Kind.HNSW]
    world.remove(0, 1100)
    await world.until(lambda: upkeep.builds == 2)
    assert world.partitions.index_bytes[Kind.HNSW] < before
    for seed in range(1100, 4000, 290):
        assert await world.nearest(seed) == f"p{seed}"


async def test_an_index_that_cannot_be_built_is_tried_again(world: World) -> None:
    world.keep(IndexLimits(FLAT_MOST, 10**6, ROOM))
    world.fails = 2
    world.add(0, MANY)
    await world.until(lambda: world.kind is Kind.HNSW)
    assert len(world.builds) == 3
    assert await world.nearest(5) == "p5"


async def test_a_partition_that_vanishes_while_its_index_is_built_leaves_nothing(world: World) -> None:
    upkeep = world.keep(IndexLimits(FLAT_MOST, 10**6, ROOM))
    world.go_on.clear()
    world.add(0, MANY)
    await world.until(lambda: bool(world.builds))
    world.remove(0, MANY)
    world.add(0, 3)
    world.go_on.set()
    await world.until(lambda: upkeep.builds == 1)
    assert (world.kind, sum(world.partitions.index_bytes.values())) == (Kind.FLAT, 0)
    assert await world.nearest(2) == "p2"


async def test_rows_that_nobody_needs_go_when_nobody_searches(world: World) -> None:
    world.keep(IndexLimits(10**5, 10**6, ROOM))
    world.add(0, 9000)
    for seed in range(9000):
        if seed % 100:
            world.remove(seed, seed + 1)
    await world.until(lambda: world.partitions.large == {})
    assert await world.nearest(8900) == "p8900"


@pytest.mark.soak
@pytest.mark.parametrize("kind", [Kind.HNSW, Kind.IVF_PQ])
async def test_h5_searching_an_index_while_entries_come_and_go_is_clean(world: World, kind: Kind) -> None:
    world.keep(IndexLimits(FLAT_MOST, 10**6, ROOM if kind is Kind.HNSW else 0))
    world.add(0, MANY)
    await world.until(lambda: world.kind is kind)
    draw, gone = random.Random(5), set[int]()

    async def change() -> None:
        # Enough for a quarter of tombstones: it is built anew meanwhile.
        for turn in rounds(2500, TEN_MINUTES_S):
            seed = draw.randrange(500, MANY)
            if seed in gone:
                world.add(seed, seed + 1)
                gone.remove(seed)
            elif len(gone) < 200:
                world.remove(seed, seed + 1)
                gone.add(seed)
            if turn % 5 == 0:
                await asyncio.sleep(0)

    async def search() -> None:
        while not changing.done():
            await asyncio.sleep(0)
            seed = draw.randrange(500)
            found = await world.searching.nearest(b"p", unit(seed), 5)
            assert found[0].entry == f"p{seed}"
            assert len({each.entry for each in found}) == len(found) == 5
            for each in found:
                assert int(each.entry[1:]) not in gone
                assert each.similarity == pytest.approx(float(unit(int(each.entry[1:])) @ unit(seed)), abs=1e-5)

    async with asyncio.TaskGroup() as group:
        changing = group.create_task(change())
        for _ in range(4):
            group.create_task(search())
    await world.filled()
    for seed in sorted(set(range(MANY)) - gone)[::97]:
        assert await world.nearest(seed) == f"p{seed}"


def files_in(folder: Path) -> IndexFiles:
    files = IndexFiles(folder / "indexes", indexes.read, most_age_s=3600)
    files.tidy()
    return files


def path_in(folder: Path) -> Path:
    return folder / "indexes" / f"{b'p'.hex()}.index"


async def written(world: World, folder: Path, limits: IndexLimits, count: int = MANY) -> None:
    """A cache with an index that it has written."""
    files = files_in(folder)
    world.keep(limits, files)
    world.add(0, count)
    await world.until(lambda: files.outcomes["written"] == 1)


@pytest.mark.parametrize("kind", [Kind.HNSW, Kind.IVF_PQ])
async def test_an_index_is_read_at_the_next_start_with_the_entries_that_live_then(
    world: World, tmp_path: Path, kind: Kind
) -> None:
    limits = IndexLimits(FLAT_MOST, 10**6, ROOM if kind is Kind.HNSW else 0)
    await written(world, tmp_path, limits)
    async with TaskScope("next") as scope:
        later, files = World(scope), files_in(tmp_path)
        # Others have gone and come, and the slots are not those they had.
        later.add(MANY - 1, MANY)
        later.add(100, MANY - 1)
        later.add(MANY, MANY + 50)
        later.keep(limits, files)
        await later.until(lambda: later.kind is kind)
        assert (later.builds, files.outcomes) == ([], {"read": 1})
        for seed in (*range(100, MANY, 97), MANY - 1, *range(MANY, MANY + 50, 7)):
            assert await later.nearest(seed) == f"p{seed}"
        for seed in range(0, 100, 9):
            assert await later.nearest(seed) != f"p{seed}"
        await later.filled()
        assert await later.nearest(MANY + 49) == f"p{MANY + 49}"
        later.thread.close()


async def test_an_index_whose_file_is_damaged_is_built(world: World, tmp_path: Path) -> None:
    files = files_in(tmp_path)
    path_in(tmp_path).write_bytes(b"x" * 9000)
    world.add(0, MANY)
    world.keep(IndexLimits(FLAT_MOST, 10**6, ROOM), files)
    await world.until(lambda: files.outcomes["written"] == 1)
    assert (world.builds, files.outcomes) == ([Kind.HNSW], {"damaged": 1, "written": 1})
    assert await world.nearest(5) == "p5"


async def test_a_file_that_cannot_be_written_is_counted_and_tried_again_when_more_has_changed(
    world: World, tmp_path: Path
) -> None:
    files = files_in(tmp_path)
    # Nobody, not even root, opens a folder for writing.
    blocking = path_in(tmp_path).with_suffix(".part")
    blocking.mkdir()
    world.keep(IndexLimits(FLAT_MOST, 10**6, ROOM), files)
    world.add(0, MANY)
    await world.until(lambda: files.outcomes["failed"] == 1)
    assert await world.nearest(5) == "p5"
    blocking.rmdir()
    world.remove(0, MANY // 8)
    await world.until(lambda: files.outcomes["written"] == 1)


async def test_entries_that_change_while_the_file_is_written_count_as_new_when_it_is_read(
    world: World, tmp_path: Path
) -> None:
    class Held(IndexFiles):
        """The real ones; entries change between the two steps."""

        def writing(self, *given: Any) -> Any:
            world.remove(0, 60)
            world.add(MANY, MANY + 60)
            return super().writing(*given)

    files = Held(tmp_path / "indexes", indexes.read, most_age_s=3600)
    files.tidy()
    limits = IndexLimits(FLAT_MOST, 10**6, ROOM)
    world.keep(limits, files)
    world.add(0, MANY)
    await world.until(lambda: files.outcomes["written"] == 1)
    async with TaskScope("next") as scope:
        later, again = World(scope), files_in(tmp_path)
        later.add(60, MANY + 60)
        later.keep(limits, again)
        await later.until(lambda: later.kind is Kind.HNSW)
        assert again.outcomes == {"read": 1}
        for seed in range(MANY, MANY + 60, 7):
            assert await later.nearest(seed) == f"p{seed}"
        later.thread.close()


async def test_the_file_of_a_context_that_is_small_again_goes(world: World, tmp_path: Path) -> None:
    await written(world, tmp_path, IndexLimits(FLAT_MOST, 10**6, ROOM))
    world.remove(1000, MANY)
    await world.until(lambda: not path_in(tmp_path).exists())
