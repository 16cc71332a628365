"""Searching beside the event loop while entries come and go."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator

import numpy as np
import pytest

from services.cache.core.semantic.partitions import Partitions
from services.cache.io.search_thread import SearchThread
from services.cache.io.searching import AT_ONCE, Searching
from streamway.runtime.tasks import TaskScope
from tests.support.soak import lasting, rounds

DIMS = 16
TEN_MINUTES_S = 600.0


def unit(seed: int) -> np.ndarray:
    vector = np.random.default_rng(seed).standard_normal(DIMS).astype(np.float32)
    return vector / np.linalg.norm(vector)


@pytest.fixture
async def searching() -> AsyncIterator[Searching]:
    async with TaskScope("test") as scope:
        thread = SearchThread()
        yield Searching(Partitions(), thread, scope)
        thread.close()


def filled(searching: Searching, count: int, partition: bytes = b"p") -> None:
    for seed in range(count):
        searching.partitions.add(partition, f"{partition.decode()}{seed}", f"q{seed}?", unit(seed))


async def test_long_searches_find_what_short_ones_find(searching: Searching) -> None:
    filled(searching, AT_ONCE + 500)
    filled(searching, 100, b"small")
    for seed in range(0, AT_ONCE, 500):
        found = await searching.nearest(b"p", unit(9000 + seed), 5)
        assert found == searching.partitions.nearest(b"p", unit(9000 + seed), 5)
    assert (await searching.nearest(b"small", unit(7), 1))[0].entry == "small7"
    assert await searching.nearest(b"nothing", unit(7), 1) == []


async def test_questions_that_come_together_are_answered_each_with_its_own(searching: Searching) -> None:
    filled(searching, AT_ONCE + 500)
    filled(searching, AT_ONCE + 1, b"r")
    async with asyncio.TaskGroup() as group:
        asked = {
            (name, seed): group.create_task(searching.nearest(name.encode(), unit(seed), 1 + seed % 5))
            for seed in range(40)
            for name in "pr"
        }
    for (name, seed), task in asked.items():
        assert (task.result()[0].entry, len(task.result())) == (f"{name}{seed}", 1 + seed % 5)


async def test_one_that_gives_up_leaves_the_others_alone(searching: Searching) -> None:
    filled(searching, AT_ONCE + 500)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(searching.nearest(b"p", unit(1), 1))
        second = group.create_task(searching.nearest(b"p", unit(2), 1))
        await asyncio.sleep(0)
        first.cancel()
    assert second.result()[0].entry == "p2"
    partition = searching.partitions.partition(b"p")
    assert partition is not None
    assert partition.searches == 0


async def test_a_search_that_fails_is_a_miss_and_the_next_one_runs(
    searching: Searching, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(searching, AT_ONCE + 500)
    with monkeypatch.context() as broken:
        broken.setattr("services.cache.core.semantic.partition.scan", _fails)
        assert await searching.nearest(b"p", unit(1), 1) == []
    assert (await searching.nearest(b"p", unit(1), 1))[0].entry == "p1"


def _fails(*_: object) -> None:
    raise RuntimeError("out of something")


@pytest.mark.soak
async def test_h5_searching_while_entries_come_and_go_is_clean(searching: Searching) -> None:
    """What is there throughout is found, and nothing that was not there at the end of the search."""
    filled(searching, AT_ONCE + 1000)
    draw = random.Random(5)
    partitions, gone = searching.partitions, set[str]()

    async def change() -> None:
        for turn in rounds(3000, TEN_MINUTES_S):
            if len(gone) < 400 and draw.random() < 0.6:
                # Those below 500 stay.
                victim = f"p{draw.randrange(500, AT_ONCE + 1000)}"
                partitions.remove(victim)
                gone.add(victim)
            elif gone:
                back = draw.choice(sorted(gone))
                partitions.add(b"p", back, "what?", unit(int(back[1:])))
                gone.remove(back)
            if turn % 20 == 0:
                await asyncio.sleep(0)

    async def search() -> None:
        while not changing.done():
            await asyncio.sleep(0)
            seed = draw.randrange(500)
            found = await searching.nearest(b"p", unit(seed), 5)
            assert found[0].entry == f"p{seed}"
            for each in found:
                assert each.entry not in gone
                assert each.similarity == pytest.approx(float(unit(int(each.entry[1:])) @ unit(seed)), abs=1e-5)

    async with asyncio.TaskGroup() as group:
        changing = group.create_task(change())
        for _ in range(8):
            group.create_task(search())
    assert len(partitions) > AT_ONCE


@pytest.mark.soak
def test_h5_eight_threads_search_add_remove_and_sweep() -> None:
    """Changes are the event loop's, one at a time; the searches of eight threads read meanwhile what is written."""
    partitions, loop = Partitions(), threading.Lock()
    alive: set[int] = set(range(3000))
    for seed in alive:
        partitions.add(b"p", f"p{seed}", f"q{seed}?", unit(seed))
    partition = partitions.partition(b"p")
    assert partition is not None
    problems: list[BaseException] = []
    until = time.monotonic() + lasting(3, TEN_MINUTES_S)

    def change(draw: random.Random) -> None:
        seed = draw.randrange(200, 6000)
        if seed in alive:
            partitions.remove(f"p{seed}")
            alive.remove(seed)
        else:
            partitions.add(b"p", f"p{seed}", f"q{seed}?", unit(seed))
            alive.add(seed)

    def sweep(draw: random.Random) -> None:
        for seed in draw.sample(sorted(alive), 5):
            if seed < 200:
                continue
            partitions.remove(f"p{seed}")
            alive.remove(seed)

    def work(number: int) -> None:
        draw = random.Random(number)
        try:
            while time.monotonic() < until:
                what = draw.random()
                if what < 0.5:
                    seed = draw.randrange(200)
                    with loop:
                        view = partition.view()
                    (slots,) = view.nearest(unit(seed)[None], 5)
                    with loop:
                        found = partitions.named(partition.neighbours(slots, unit(seed), 5))
                        assert found[0].entry == f"p{seed}"
                        assert all(int(each.entry[1:]) in alive for each in found)
                else:
                    with loop:
                        (sweep if what > 0.98 else change)(draw)
        except BaseException as problem:  # told by the test
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(partitions) == len(alive)
    for seed in alive:
        assert f"p{seed}" in [each.entry for each in partitions.nearest(b"p", unit(seed), 1)]
