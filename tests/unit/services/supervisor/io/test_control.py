"""The supervisor's socket, on real processes."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from services.supervisor.io import control
from services.supervisor.io.control import Control
from tests.support.adapter_world import eventually


class Sleeper:
    """A process that does nothing."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(["sleep", "300"])

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    async def status(self) -> str:
        return str(psutil.Process(self.pid).status())


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    made = Sleeper()
    yield made
    made.process.kill()
    made.process.wait()


@pytest.fixture
async def notes(sleeper: Sleeper, tmp_path: Path) -> AsyncIterator[list[str]]:
    said: list[str] = []
    served = Control(tmp_path / "c.sock", lambda: {"adapter-0": sleeper}, said.append)
    await served.start()
    assert (tmp_path / "c.sock").stat().st_mode & 0o777 == 0o600
    yield said
    await served.close()
    assert not (tmp_path / "c.sock").exists()
    if sleeper.running:
        await eventually(sleeper.status, psutil.STATUS_SLEEPING)


async def asked(folder: Path, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
    connector = aiohttp.UnixConnector(str(folder / "c.sock"))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.request(method, f"http://x{path}", data=body) as answer,
    ):
        return answer.status, await (answer.json() if answer.status == 200 else answer.text())


def told(state: str) -> tuple[int, Any]:
    return 200, {"workers": [{"name": "adapter-0", "state": state}]}


async def test_a_worker_is_paused_let_go_on_and_killed(sleeper: Sleeper, notes: list[str], tmp_path: Path) -> None:
    assert await asked(tmp_path, "GET", "/workers") == told("running")
    assert await asked(tmp_path, "POST", "/workers/adapter-0", '{"deed": "pause"}') == told("paused")
    await eventually(sleeper.status, psutil.STATUS_STOPPED)
    assert (await asked(tmp_path, "POST", "/workers/adapter-0", '{"deed": "pause"}'))[0] == 409
    assert await asked(tmp_path, "POST", "/workers/adapter-0", '{"deed": "go_on"}') == told("running")
    await eventually(sleeper.status, psutil.STATUS_SLEEPING)
    await asked(tmp_path, "POST", "/workers/adapter-0", '{"deed": "kill"}')
    assert await asyncio.to_thread(sleeper.process.wait, 10) == -9
    assert await asked(tmp_path, "GET", "/workers") == told("down")
    assert notes == [f"adapter-0: {deed}, from the console" for deed in ("pause", "go on", "kill")]


async def test_what_is_paused_goes_on_by_itself_also_when_nobody_comes_back(
    sleeper: Sleeper, notes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "PAUSE_S", 0.5)
    await asked(tmp_path, "POST", "/workers/adapter-0", '{"deed": "pause"}')
    await eventually(sleeper.status, psutil.STATUS_SLEEPING)
    monkeypatch.setattr(control, "PAUSE_S", 300.0)
    assert await asked(tmp_path, "POST", "/workers/adapter-0", '{"deed": "pause"}') == told("paused")
    # The fixture closes, and looks that it goes on.


@pytest.mark.parametrize("body", ["", "{}", '{"deed": "eat"}', "[]", "kill", "x" * 5000, "\udcff"])
async def test_anything_else_is_refused(sleeper: Sleeper, notes: list[str], tmp_path: Path, body: str) -> None:
    encoded = body.encode(errors="surrogateescape").decode("latin-1")
    status, _ = await asked(tmp_path, "POST", "/workers/adapter-0", encoded)
    assert status in (400, 413)
    assert (await asked(tmp_path, "POST", "/workers/router-0", '{"deed": "kill"}'))[0] == 404
    assert sleeper.running
    assert notes == []
