"""A whole mesh with real engines inside its workers: weights are exchanged, and a worker is killed, in mid-answer; whoever reads
sees one text (`docs/acceptance.md` D1)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.install_model import model_path
from tests.support.clients import assert_positions_tile, frames, text_of
from tests.support.mesh import MeshProcesses

MODEL = "story"
TOKENS = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inside")


@pytest.fixture(scope="module")
def inside_mesh(folder: Path) -> Iterator[MeshProcesses]:
    """Two workers with llama.cpp inside: who kills one kills its engine."""
    path = model_path()
    if path is None:
        pytest.skip("left out: the model is not installed; run `python scripts/install_model.py`")
    link = folder / f"{MODEL}.gguf"
    link.symlink_to(path)
    processes = MeshProcesses(
        folder,
        engine="llamacpp_inside",
        arguments=("--workers", "2", "--model", str(link)),
        environment={
            "STREAMWAY_ADAPTER_SLOTS": "1",
            "STREAMWAY_ADAPTER_CONTEXT_TOKENS": "512",
            "STREAMWAY_ADAPTER_ENGINE_PROBE": "false",
        },
    )
    yield processes
    processes.close()


async def test_all_workers_exchange_their_weights_and_no_answer_is_lost(
    inside_mesh: MeshProcesses, folder: Path
) -> None:
    other = folder / "other.gguf"
    link = folder / f"{MODEL}.gguf"
    other.symlink_to(link.resolve())
    async with frames(inside_mesh.websocket_url) as client:
        params = {"max_tokens": 80, "temperature": 0}
        await client.open("x", "Count from one to two hundred in words.", model=MODEL, params=params)
        seen = await client.until("token", "x", 60)
        link.unlink()
        link.symlink_to(other)
        command = [sys.executable, "-m", "services.supervisor", "reload", "--data-dir", str(inside_mesh.data_dir)]
        reload = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        seen += await client.until("finished", "x", 120)
        said, _ = await asyncio.wait_for(reload.communicate(), 120)
    assert reload.returncode == 0
    rows = said.decode().splitlines()
    assert [row.split()[0] for row in rows] == ["adapter-0", "adapter-1"]
    assert all("beside the old ones" in row for row in rows)
    assert_positions_tile(seen, "x")
    assert not [frame for frame in seen if frame["type"] == "taken_over"]


async def test_d1_an_engine_inside_its_worker_is_killed_in_mid_answer(inside_mesh: MeshProcesses) -> None:
    async with frames(inside_mesh.websocket_url) as client:
        params = {"max_tokens": TOKENS, "temperature": 0}
        await client.open("x", "Count from one to thirty in words.", model=MODEL, params=params)
        seen = await client.until("started", "x", 60)
        first = seen[-1]["worker"]
        while sum(frame["type"] == "token" for frame in seen) < 3:
            seen += await client.until("token", "x", 60)
        inside_mesh.kill(first)
        before = text_of(seen)
        seen += await client.until("finished", "x", 90)
    assert_positions_tile(seen, "x")
    (taken,) = [frame for frame in seen if frame["type"] == "taken_over"]
    assert taken["from_worker"] == first != taken["worker"]
    # One text: the rest follows what was told, and is not the answer begun anew.
    whole = text_of(seen)
    assert whole.startswith(before)
    assert len(whole) > len(before)
    assert not whole.removeprefix(before).startswith(before)
    # Of the whole answer, both engines' parts.
    assert seen[-1]["usage"]["completion_tokens"] <= TOKENS
