"""`docs/acceptance.md` J1, D1 and C2 with real kills: whatever dies, each token comes once, in order, and the end once."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from collections.abc import Callable

import pytest

from tests.support.mesh import MeshProcesses
from tests.support.resilient import SURFACES, Told

MOST = 60
pytestmark = pytest.mark.timeout(240)


def phase_reached(phase: str) -> Callable[[Told], bool]:
    """When to kill."""
    return {
        "queued": lambda told: told.position >= 1,
        "prefill": lambda told: told.position >= 2,
        "decode": lambda told: told.units >= 20,
        "last token": lambda told: told.units >= MOST - 1,
    }[phase]


async def undisturbed(mesh: MeshProcesses, prompt: str) -> str:
    """The text of the same request when nothing happens: the simulated engine repeats itself."""
    told = await SURFACES["websocket"](mesh, prompt, MOST, lambda _: None, f"undisturbed {prompt}")
    assert told.usage is not None, told.problem
    return told.text


async def all_back(mesh: MeshProcesses, name: str, old_pid: int) -> None:
    """Waits for the replacement, and until a lease tells of it."""
    await mesh.restarted(name, old_pid, 90)
    await asyncio.sleep(1.2)


# These run in CI; with FULL=1 all that there are.
SOME = [
    ("adapter", "prefill", "grpc"),
    ("adapter", "decode", "websocket"),
    ("adapter", "decode", "grpc"),
    ("adapter", "last token", "websocket"),
    ("adapter", "queued", "sse"),
    ("router", "decode", "websocket"),
    ("router", "decode", "grpc"),
    ("router", "queued", "websocket"),
    ("edge", "decode", "websocket"),
    ("edge", "decode", "sse"),
    ("edge", "decode", "grpc"),
    ("edge", "last token", "websocket"),
]
ALL = list(itertools.product(("adapter", "router", "edge"), ("queued", "prefill", "decode", "last token"), SURFACES))


@pytest.mark.parametrize(("victim", "phase", "surface"), ALL if os.environ.get("FULL") == "1" else SOME)
async def test_j1_a_kill_loses_and_repeats_nothing(
    chaos_mesh: MeshProcesses, victim: str, phase: str, surface: str
) -> None:
    mesh = chaos_mesh
    reached, killed = phase_reached(phase), dict[str, int]()

    def watch(told: Told) -> None:
        if killed or not reached(told):
            return
        if victim == "adapter":
            names = [told.worker] if told.worker else ["adapter-0", "adapter-1"][:1]
        elif victim == "edge":
            # The socket may be at either: both go, one after the other is back.
            names = ["edge-0", "edge-1"]
        else:
            names = ["router-0"]
        for name in names:
            killed[name] = mesh.kill(name)

    prompt = f"j1 {victim} {phase} {surface}: how does a river find the sea?"
    told = await SURFACES[surface](mesh, prompt, MOST, watch, prompt)
    assert killed
    assert not told.problem, told.problem
    assert told.usage is not None
    assert told.repeated == 0
    for name, pid in killed.items():
        await all_back(mesh, name, pid)
    assert told.text == await undisturbed(mesh, prompt)
    assert told.units == MOST
    assert told.usage["completion_tokens"] == MOST
    if victim == "adapter" and phase in ("decode", "last token"):
        assert len(told.workers) == 2


async def test_many_streams_survive_the_death_of_their_worker(chaos_mesh: MeshProcesses) -> None:
    """More streams than slots, so that some are queued when a worker dies; all of them end whole."""
    mesh = chaos_mesh
    results: list[Told] = []

    async def one(number: int) -> None:
        surface = ("websocket", "sse")[number % 2]
        results.append(await SURFACES[surface](mesh, f"many {number}", MOST, lambda _: None, f"many {number}"))

    async with asyncio.TaskGroup() as group:
        for number in range(12):
            group.create_task(one(number))
        await asyncio.sleep(2.0)
        old = mesh.kill("adapter-0")
    assert len(results) == 12
    assert [told.problem for told in results if told.problem] == []
    assert all(told.units == MOST for told in results)
    await all_back(mesh, "adapter-0", old)


async def test_c2_a_stopped_worker_is_found_and_its_stream_goes_on(chaos_mesh: MeshProcesses) -> None:
    """SIGSTOP: the sockets stay open and nothing comes. The stream moves within ten seconds or so, and the sleeper is fenced."""
    mesh = chaos_mesh
    stopped: dict[str, float] = {}
    moved: list[float] = []
    pids: list[int] = []

    def watch(told: Told) -> None:
        if not stopped and told.units >= 20:
            pids.append(mesh.pid_of(told.worker))
            os.kill(pids[0], signal.SIGSTOP)
            stopped[told.worker] = time.monotonic()
        elif len(told.workers) == 2 and not moved:
            moved.append(time.monotonic())

    try:
        told = await SURFACES["websocket"](mesh, "c2 stopped", MOST, watch, "c2 stopped")
        assert not told.problem, told.problem
        assert told.units == MOST
        assert moved[0] - next(iter(stopped.values())) < 20
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    await asyncio.sleep(3)
    again = await SURFACES["sse"](mesh, "c2 after", MOST, lambda _: None, "c2 after")
    assert again.units == MOST
