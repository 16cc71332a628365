"""Processes as forks of one that has imported what they need, with the real fork server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.supervisor.io.starting import Forks, Launch, Running, Spawner

_MODULE = "tests.support.forked"
_WITHIN_S = 30.0


class Asked:
    """One process that was asked for, and its output."""

    def __init__(self) -> None:
        self.output, self._its_output = os.pipe()
        self.errors, self._its_errors = os.pipe()
        self.descriptor, self._written = os.pipe()
        os.write(self._written, b"for you")
        self.process: Running

    async def of(self, forks: Forks, end: str, **environment: str) -> dict[str, Any]:
        """Starts it and returns what it told."""
        command = [sys.executable, "-m", _MODULE, str(self.descriptor), end]
        given = {"PYTHONPATH": os.pathsep.join(sys.path), **environment}
        launch = Launch(command, given, self._its_output, self._its_errors, [self.descriptor])
        self.process = await forks.start(launch)
        os.close(self._its_output)
        os.close(self._its_errors)
        told: dict[str, Any] = json.loads(await asyncio.wait_for(asyncio.to_thread(self._line), _WITHIN_S))
        return told

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n") and (more := os.read(self.output, 1)):
            line += more
        return line

    def close(self) -> None:
        for descriptor in (self.output, self.errors, self.descriptor, self._written):
            os.close(descriptor)


@pytest.fixture
async def forks() -> AsyncIterator[Forks]:
    made = Forks(Spawner(), ["streamway.telemetry.context"])
    await made.open({"PYTHONPATH": os.pathsep.join(sys.path)})
    yield made
    await made.close()


async def test_a_fork_is_what_a_process_of_its_own_would_be(forks: Forks) -> None:
    one, other = Asked(), Asked()
    told = await one.of(forks, "3", ONLY="this")
    assert told["environment"] == {"PYTHONPATH": os.pathsep.join(sys.path), "ONLY": "this"}
    assert told["read"] == "for you"
    assert told["group"] == told["pid"] == one.process.pid
    assert told["title"].endswith(f"-m {_MODULE} {one.descriptor} 3")
    assert len(set(told["open"]) - {0, 1, 2, one.descriptor}) == 1, "the folder it lists"
    assert await asyncio.wait_for(one.process.wait(), _WITHIN_S) == one.process.poll() == 3
    assert (os.read(one.errors, 100), os.read(one.output, 100)) == (b"a complaint\n", b"a last word")
    one.process.signal(signal.SIGTERM)

    assert (await other.of(forks, "0"))["trace"] != told["trace"], "chance is not what they share"
    assert await asyncio.wait_for(other.process.wait(), _WITHIN_S) == 0
    one.close()
    other.close()


async def test_a_fork_that_is_killed_says_by_what(forks: Forks) -> None:
    asked = Asked()
    await asked.of(forks, "wait")
    assert asked.process.poll() is None
    asked.process.signal(signal.SIGKILL)
    assert await asyncio.wait_for(asked.process.wait(), _WITHIN_S) == -signal.SIGKILL
    asked.close()


async def test_without_the_fork_server_what_ran_has_ended_and_the_next_is_started_by_itself(forks: Forks) -> None:
    first, second = Asked(), Asked()
    await first.of(forks, "wait")
    assert forks._server is not None
    os.kill(forks._server.pid, signal.SIGKILL)
    assert await asyncio.wait_for(first.process.wait(), _WITHIN_S) == -signal.SIGKILL
    told = await second.of(forks, "0")
    assert told["read"] == "for you"
    assert await asyncio.wait_for(second.process.wait(), _WITHIN_S) == 0
    first.close()
    second.close()


async def test_an_environment_too_long_for_a_message_is_no_hindrance(forks: Forks) -> None:
    asked = Asked()
    long = {f"LONG_{number}": "x" * 100_000 for number in range(4)}
    told = await asked.of(forks, "0", **long)
    assert told["environment"]["LONG_3"] == "x" * 100_000
    assert await asyncio.wait_for(asked.process.wait(), _WITHIN_S) == 0
    asked.close()
