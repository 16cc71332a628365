"""`streamway dead` against a real Valkey."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from typer.testing import CliRunner

from services.supervisor.cli import app
from streamway.errors import InvalidArgument
from streamway.lanes import TaskCopy
from streamway.lanes.dead import list_dead
from streamway.runtime.ids import new_generation_id
from streamway.v1 import common_pb2
from streamway.valkey import keys
from tests.support.valkey_server import ValkeyServer


async def _bury(valkey: Redis, *, kept: bool = True) -> str:
    generation = new_generation_id()
    calls = [{"attempt": n, "epoch": n << 20, "position": n + 1, "worker": f"w{n}"} for n in (1, 2, 3)]
    fields: Any = {**TaskCopy(generation, 3, "ref").fields(), "lane": "sw:lane:{w3}:bulk", "calls": json.dumps(calls)}
    await valkey.xadd(keys.dead("m"), fields)
    if kept:
        request = common_pb2.GenerationRequest(generation=generation, model="m", tenant="acme", priority=-1)
        record: Any = {"request": request.SerializeToString(), "tenant": "acme", "state": "failed", "model": "m"}
        await valkey.hset(keys.generation(generation), mapping=record)
    return generation


def _run(server: ValkeyServer, tmp_path: Path, *arguments: str) -> Any:
    """In a thread of its own loop: the command runs one itself."""
    where = ["--valkey", server.url, "--data-dir", str(tmp_path)]
    return CliRunner().invoke(app, ["tasks", *arguments, *where], env={"COLUMNS": "200"})


async def _in_thread(server: ValkeyServer, tmp_path: Path, *arguments: str) -> Any:
    return await asyncio.to_thread(_run, server, tmp_path, *arguments)


async def test_dead_tasks_are_listed_and_tried_again(
    valkey: Redis, valkey_server: ValkeyServer, tmp_path: Path
) -> None:
    nothing = await _in_thread(valkey_server, tmp_path, "dead")
    assert (nothing.exit_code, nothing.output.strip()) == (0, "no dead tasks")
    first, gone = await _bury(valkey), await _bury(valkey, kept=False)
    counted = await _in_thread(valkey_server, tmp_path, "dead")
    assert "m" in counted.output
    assert "2" in counted.output
    listed = await _in_thread(valkey_server, tmp_path, "dead", "m")
    assert first in listed.output
    assert "w1 → w2 → w3" in listed.output
    assert "acme" in listed.output
    tried = await _in_thread(valkey_server, tmp_path, "redrive", "m")
    assert tried.exit_code == 0, tried.output
    assert f"{first}  waits in the pool" in tried.output
    assert f"{gone}  its request is not kept any more" in tried.output
    assert [task.generation for task in await list_dead(valkey, "m")] == [gone]
    (entry,) = await valkey.xrange(keys.pool("m", "bulk"))
    copy = TaskCopy.parse(entry[1])
    assert (copy.generation, copy.attempt) == (first, 4)
    assert await valkey.hget(keys.generation(first), "state") == b"queued"
    (accepted,) = await valkey.xrange(keys.response(first))
    assert accepted[0] == b"0-1"
    assert await valkey.pttl(keys.response(first)) > 0


async def test_only_one_is_tried_where_it_is_named(valkey: Redis, valkey_server: ValkeyServer, tmp_path: Path) -> None:
    first, second = await _bury(valkey), await _bury(valkey)
    tried = await _in_thread(valkey_server, tmp_path, "redrive", "m", "--generation", second)
    assert tried.exit_code == 0
    assert [task.generation for task in await list_dead(valkey, "m")] == [first]
    unknown = await _in_thread(valkey_server, tmp_path, "redrive", "m", "--generation", "nobody")
    assert isinstance(unknown.exception, InvalidArgument)


@pytest.mark.parametrize("arguments", [("redrive",), ()])
def test_what_is_missing_is_said(arguments: tuple[str, ...]) -> None:
    assert CliRunner().invoke(app, ["tasks", *arguments]).exit_code == 2
