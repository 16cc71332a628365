"""`streamway prune` against a real Valkey: for each rule something that goes, and what must stay."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import datetime
from datetime import time as clock
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from typer.testing import CliRunner

from services.supervisor.cli import app
from services.supervisor.io import pruning
from services.supervisor.io.nightly import Nightly
from services.supervisor.io.pruning import Pruning, prune_index_files
from streamway.runtime.process import StartError
from streamway.valkey import keys
from tests.support.adapter_world import eventually
from tests.support.valkey_server import ValkeyServer

FIELDS: Any = {"kind": "tokens"}
END: Any = {"kind": "end"}


async def _pending(valkey: Redis, lane: str, consumer: str) -> bytes:
    """One entry, taken and not done."""
    entry: Any = await valkey.xadd(lane, FIELDS)
    await valkey.xreadgroup(keys.LANE_GROUP, consumer, {lane: ">"}, count=1)
    return bytes(entry)


async def _consumers(valkey: Redis, lane: str) -> set[str]:
    rows: Any = await valkey.xinfo_consumers(lane, keys.LANE_GROUP)
    return {row["name"].decode() for row in rows}


async def _group(valkey: Redis, lane: str, *consumers: str) -> str:
    await valkey.xgroup_create(lane, keys.LANE_GROUP, id="0", mkstream=True)
    for consumer in consumers:
        await valkey.xgroup_createconsumer(lane, keys.LANE_GROUP, consumer)
    return lane


async def _alive(valkey: Redis, kind: str, id_: str) -> None:
    await valkey.hset(keys.lease(kind, id_), "address", "x")
    await valkey.zadd(keys.lease_index(kind), {id_: time.time() * 1000})


def _rows(output: str) -> list[list[str]]:
    """The rows with numbers, of the rules and of all."""
    words = [line.split() for line in output.splitlines()]
    return [row for row in words if row and row[-1][0].isdigit()]


async def _cached(valkey: Redis) -> None:
    await valkey.set(keys.cache_entry("acme", "lives"), "answer")
    rows: Any = {"lives": b"7 row", "gone": b"5 row", "#": 12}
    await valkey.hset(keys.cache_rows("acme"), mapping=rows)
    await valkey.zadd(keys.cache_used("acme"), {"lives": 1, "gone": 2})


async def test_cache_rows_go_with_their_entries(valkey: Redis) -> None:
    await _cached(valkey)
    freed = await Pruning(valkey, dry=False).cache_rows()
    assert freed.number == 1
    assert freed.size_bytes > 0
    assert await valkey.hgetall(keys.cache_rows("acme")) == {b"lives": b"7 row", b"#": b"7"}
    assert await valkey.zrange(keys.cache_used("acme"), 0, -1) == [b"lives"]


async def test_context_rows_go_with_their_contexts(valkey: Redis) -> None:
    await valkey.hset(keys.context("acme", "here"), "last", "g")
    await valkey.zadd(keys.contexts("acme"), {"here": 1764442000001, "gone": 1764442000002})
    await valkey.zadd(keys.contexts_running(), {"acme/here": 1, "acme/gone": 2, "nobody": 3})
    freed = await Pruning(valkey, dry=False).context_rows()
    assert freed.number == 3
    assert await valkey.zrange(keys.contexts("acme"), 0, -1) == [b"here"]
    assert await valkey.zrange(keys.contexts_running(), 0, -1) == [b"acme/here"]


async def test_a_context_row_that_changes_meanwhile_stays(valkey: Redis) -> None:
    await valkey.zadd(keys.contexts("acme"), {"back": 2})
    reply: Any = valkey.eval(pruning._DROP_ROW, 1, keys.contexts("acme"), "back", "1.0")
    assert await reply == 0
    assert await valkey.zcard(keys.contexts("acme")) == 1


async def test_only_empty_lanes_of_workers_that_are_gone_go(valkey: Redis) -> None:
    empty = await _group(valkey, keys.lane("gone", "gold"), "gone")
    unread = await _group(valkey, keys.lane("gone", "bulk"), "gone")
    await valkey.xadd(unread, FIELDS)
    taken = await _group(valkey, keys.lane("gone", "silver"))
    await valkey.xdel(taken, await _pending(valkey, taken, "gone"))
    living = await _group(valkey, keys.lane("w", "gold"), "w")
    await _alive(valkey, "worker", "w")
    lately = await _group(valkey, keys.lane("lately", "gold"), "lately")
    await valkey.zadd(keys.lease_index("worker"), {"lately": 1})
    freed = await Pruning(valkey, dry=False).lanes()
    assert freed.number == 1
    assert freed.size_bytes > 0
    assert await valkey.exists(empty) == 0
    assert await valkey.exists(unread, taken, living, lately) == 4


async def test_only_idle_consumers_without_lease_and_work_go(valkey: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    await _alive(valkey, "worker", "w")
    await _alive(valkey, "router", "r")
    pool = await _group(valkey, keys.pool("m", "gold"), "gone", "w", keys.reclaimer("r"), keys.reclaimer("gone"))
    lane = await _group(valkey, keys.lane("w", "gold"), "w", "gone")
    await _pending(valkey, pool, "holds")
    assert (await Pruning(valkey, dry=False).consumers()).number == 0, "none was idle for an hour"
    monkeypatch.setattr(pruning, "IDLE_MS", 0)
    assert (await Pruning(valkey, dry=False).consumers()).number == 3
    assert await _consumers(valkey, pool) == {"w", keys.reclaimer("r"), "holds"}
    assert await _consumers(valkey, lane) == {"w"}


async def test_ended_channels_and_records_without_expiry_go(valkey: Redis) -> None:
    for id_, fields, state, expires in (
        ("old", END, "finished", False),
        ("runs", FIELDS, "running", False),
        ("kept", END, "failed", True),
    ):
        await valkey.xadd(keys.response(id_), fields)
        await valkey.hset(keys.generation(id_), "state", state)
        if expires:
            await valkey.expire(keys.response(id_), 600)
            await valkey.expire(keys.generation(id_), 600)
    pruned = Pruning(valkey, dry=False)
    assert [(await pruned.channels()).number, (await pruned.records()).number] == [1, 1]
    assert await valkey.exists(keys.response("old"), keys.generation("old")) == 0
    names = [name(id_) for name in (keys.response, keys.generation) for id_ in ("runs", "kept")]
    assert await valkey.exists(*names) == 4


def test_only_old_index_files_go(tmp_path: Path) -> None:
    days = {"aa.index": 8, "bb.index": 6, "cc.part": 8, "notes.txt": 8}
    for name, age in days.items():
        (tmp_path / name).write_bytes(b"123")
        at = time.time() - age * 86_400
        os.utime(tmp_path / name, (at, at))
    assert prune_index_files(tmp_path, 9 * 86_400, dry=False).number == 0, "entries may live for nine days"
    assert prune_index_files(tmp_path, 60, dry=True)[1:] == (2, 6)
    assert prune_index_files(tmp_path, 60, dry=False)[1:] == (2, 6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bb.index", "notes.txt"]
    assert prune_index_files(tmp_path / "nowhere", 60, dry=False).number == 0


async def test_a_dry_run_says_the_same_and_changes_nothing(
    valkey: Redis, valkey_server: ValkeyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "IDLE_MS", 0)
    await _cached(valkey)
    await valkey.zadd(keys.contexts("acme"), {"gone": 2})
    await _group(valkey, keys.lane("gone", "gold"), "gone")
    await _group(valkey, keys.pool("m", "gold"), "gone")
    await valkey.xadd(keys.response("old"), END)
    await valkey.hset(keys.generation("old"), "state", "cancelled")
    monkeypatch.setenv("STREAMWAY_CACHE_INDEX_FOLDER", str(tmp_path))
    (tmp_path / "aa.index").write_bytes(b"123")
    os.utime(tmp_path / "aa.index", (1, 1))

    def run(*arguments: str) -> Any:
        where = ["--valkey", valkey_server.url, "--data-dir", str(tmp_path)]
        return CliRunner().invoke(app, ["prune", *arguments, *where], env={"COLUMNS": "200"})

    before = {name: await valkey.dump(name) for name in await valkey.keys()}
    dry = await asyncio.to_thread(run, "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "would free" in dry.output
    assert {name: await valkey.dump(name) for name in await valkey.keys()} == before
    assert (tmp_path / "aa.index").exists()
    real = await asyncio.to_thread(run)
    assert real.exit_code == 0, real.output
    # Both say the same of each rule, and of all together.
    dry_rows, rows = _rows(dry.output), _rows(real.output)
    assert dry_rows == rows
    assert [row[-2] for row in rows] == ["1", "1", "1", "1", "1", "1", "1", "7"]
    assert not (tmp_path / "aa.index").exists()
    assert await valkey.exists(keys.lane("gone", "gold"), keys.response("old"), keys.generation("old")) == 0
    assert await valkey.hlen(keys.cache_rows("acme")) == 2


def test_a_store_that_is_away_is_said(tmp_path: Path) -> None:
    where = ["--valkey", f"unix://{tmp_path}/none", "--data-dir", str(tmp_path)]
    result = CliRunner().invoke(app, ["prune", *where])
    assert isinstance(result.exception, StartError)
    assert "does not answer" in str(result.exception)


async def test_each_night_it_is_done_told_and_a_night_that_fails_does_not_end_it(
    valkey: Redis, valkey_server: ValkeyServer, tmp_path: Path
) -> None:
    cache = {"index_folder": str(tmp_path), "most_ttl_s": 60.0}
    await _cached(valkey)
    (tmp_path / "aa.index").write_bytes(b"123")
    os.utime(tmp_path / "aa.index", (1, 1))
    told: list[str] = []
    # A second before half past three, local time, whose clock goes on as the real one does.
    half_past = datetime(2026, 11, 30, 3, 30).timestamp()  # noqa: DTZ001 - local time
    began = time.monotonic()

    def now() -> float:
        return half_past - 1 + time.monotonic() - began

    nightly = asyncio.create_task(Nightly(clock(3, 30), valkey_server.url, cache, told.append, now).run())
    assert await valkey.hexists(keys.cache_rows("acme"), "gone")
    await eventually(lambda: len(told), 1)
    assert "1 cache rows of expired entries" in told[0]
    assert "1 old index files" in told[0]
    assert not await valkey.hexists(keys.cache_rows("acme"), "gone")
    assert not nightly.done(), "the next night is waited for"
    nightly.cancel()

    away = Nightly(clock(3, 30), f"unix://{tmp_path}/none", cache, told.append)
    await away.once()
    assert told[1].startswith("not pruned (StartError)")
    await Nightly(clock(3, 30), valkey_server.url, cache, told.append).once()
    assert told[2] == "pruned: there was nothing to free"
