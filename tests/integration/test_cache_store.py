"""The cache's entries in a real Valkey: they outlive the process, other caches have them, and nothing waits for the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from msgspec import structs
from redis.asyncio import Redis

from services.cache.core.records import pack_entry, unpack_entry
from streamway.auth.identity import ANONYMOUS
from streamway.errors import from_rpc_error
from streamway.v1 import cache_pb2, common_pb2
from streamway.valkey import keys
from tests.support.adapter_world import eventually
from tests.support.caches import ALIKE, EXACT, FOLDED, MISS, Cache, cache
from tests.support.valkey_server import ValkeyServer
from tests.unit.services.cache.requests import answer, typed

TENANT = ANONYMOUS.tenant
QUIET = {"semantic_threshold": 0.92, "semantic_audit_share": 0, "semantic_compare_share": 0, "encoder_timeout_s": 5.0}


@pytest.fixture
async def start(valkey: Redis, valkey_server: ValkeyServer) -> AsyncIterator[Any]:
    async with AsyncExitStack() as stack:

        async def make(**settings: Any) -> Cache:
            return await stack.enter_async_context(cache(valkey_server.url, **settings))

        yield make


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ValkeyServer]:
    server = ValkeyServer(tmp_path, "--appendonly", "yes", "--appendfsync", "always")
    yield server
    server.stop()


def asks(text: str, **more: Any) -> common_pb2.GenerationRequest:
    return typed(text, cache=common_pb2.CACHE_POLICY_SEMANTIC, **more)


async def test_h6_a_restart_keeps_every_entry(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with cache(valkey_server.url) as before:
        entry = await before.put(typed("one"), "An", "swer")
        await before.put(typed("two", cache=common_pb2.CACHE_POLICY_FOLDED), "b")
        # The last ones are written on the way out.
        await before.stub.Store(cache_pb2.StoreRequest(request=typed("three"), events=answer("c")))
    async with cache(valkey_server.url) as after:
        found = await after.look(typed("one"))
        assert (found.outcome, found.answer.entry) == (EXACT, entry)
        assert [event.token.text for event in found.answer.events] == ["An", "swer"]
        assert await after.outcome(typed("TWO!", cache=common_pb2.CACHE_POLICY_FOLDED)) == FOLDED
        assert await after.outcome(typed("three")) == EXACT
        assert await after.outcome(typed("one", tenant="other", model="n")) == MISS


async def test_h6_a_restart_keeps_what_is_found_by_likeness(valkey: Redis, valkey_server: ValkeyServer) -> None:
    settings = {"encoder": "auto", **QUIET}
    async with cache(valkey_server.url, **settings) as before:
        await before.put(asks("How do I reset my password?"), "Click.")
    async with cache(valkey_server.url, **settings) as after:
        assert len(after.app._answers.likeness.partitions) == 1, "with the vector that was stored"
        assert await after.outcome(asks("How can I reset my password?")) == ALIKE


async def test_h6_two_caches_have_each_others_entries_and_invalidations(start: Any) -> None:
    one, other = await start(node="a"), await start(node="b")
    first = await one.put(typed("1"), "x")
    await one.put(typed("2", metadata={"cache_tags": "doc-7"}), "x")
    await one.put(typed("3", model="n"), "x")

    async def seen(text: str, **more: Any) -> bool:
        return await other.outcome(typed(text, **more)) == EXACT

    for text, more in (("1", {}), ("2", {}), ("3", {"model": "n"})):
        await eventually(lambda text=text, more=more: seen(text, **more), True)

    async def removed(at: Cache, **target: Any) -> int:
        return int((await at.stub.Invalidate(cache_pb2.InvalidateRequest(**target))).removed)

    assert await removed(other, tag="doc-7") == 1
    await eventually(lambda: one.outcome(typed("2")), MISS)
    assert await removed(other, entry=first) == 1
    await eventually(lambda: one.outcome(typed("1")), MISS)
    assert await removed(one, model="n") == 1
    await eventually(lambda: other.outcome(typed("3", model="n")), MISS)
    assert await removed(one, all=True) == 0


async def test_what_memory_has_no_room_for_is_read_from_the_store(start: Any) -> None:
    small = await start(limit_bytes=1024**2, tenant_limit_bytes=1024**2)
    for number in range(6):
        await small.put(typed(f"q{number}"), "x" * 300_000)
    assert len(small.app._cache.entries) < 6
    for number in range(6):
        assert await small.outcome(typed(f"q{number}")) == EXACT
    assert small.persistence.tally.read >= 3
    assert await small.outcome(typed("q6")) == MISS
    assert small.persistence.tally.late == 0


async def test_the_store_is_bounded_and_the_longest_unused_goes(start: Any, valkey: Redis) -> None:
    cache_ = await start(store_limit_bytes=500_000, limit_bytes=1024**2, tenant_limit_bytes=1024**2)
    for number in range(8):
        await cache_.put(typed(f"q{number}"), "x" * 100_000)
    rows = keys.cache_rows(TENANT)
    total = int(await valkey.hget(rows, "#"))
    assert total <= 500_000
    assert await valkey.hlen(rows) == 1 + 4
    assert cache_.persistence.tally.trimmed == 4

    async def values() -> int:
        return len(await valkey.keys(keys.cache_entry(TENANT, "*")))

    await eventually(values, 4)
    assert cache_.persistence.known.size_bytes == total


@pytest.mark.parametrize("damage", ["cut", "flipped", "foreign"])
async def test_h6_a_damaged_value_is_dropped_and_counted(start: Any, valkey: Redis, damage: str) -> None:
    first = await start(node="a")
    await first.put(typed("1"), "of one")
    await first.put(typed("2"), "of two")
    names = sorted(await valkey.keys("sw:cache:{*"))
    values = [await valkey.get(name) for name in names]
    bad = {
        "cut": values[0][:-5],
        "flipped": values[0][:40] + bytes([values[0][40] ^ 1]) + values[0][41:],
        "foreign": values[1],
    }
    await valkey.set(names[0], bad[damage], keepttl=True)
    second = await start(node="b")
    found = [await second.look(typed(text)) for text in ("1", "2")]
    assert sorted(each.outcome for each in found) == sorted([EXACT, MISS])
    for each, text in zip(found, ("of one", "of two"), strict=True):
        assert each.outcome == MISS or each.answer.events[0].token.text == text
    assert second.persistence.tally.damaged >= 1
    await eventually(lambda: valkey.exists(names[0]), 0)


async def test_a_cache_that_missed_changes_reads_everything_again(start: Any, valkey: Redis) -> None:
    one, other = await start(node="a"), await start(node="b")
    await one.put(typed("1"), "x")
    await eventually(lambda: other.outcome(typed("1")), EXACT)
    before = other.persistence.tally.rebuilt
    # Both are behind a stream that begins anew, and the entry is gone without a word.
    names = await valkey.keys("sw:cache:{*")
    await valkey.delete(*names, keys.cache_rows(TENANT), keys.cache_changes())
    await one.put(typed("2"), "x")
    await eventually(lambda: other.persistence.tally.rebuilt > before, True)
    await eventually(lambda: other.outcome(typed("1")), MISS)
    await eventually(lambda: other.outcome(typed("2")), EXACT)


async def test_a_full_store_is_no_error_and_everything_is_served_from_memory(tmp_path: Path) -> None:
    server = ValkeyServer(tmp_path, "--maxmemory", "3mb")
    try:
        async with cache(server.url) as full:
            for number in range(12):
                request = typed(f"q{number}")
                stored = await full.stub.Store(
                    cache_pb2.StoreRequest(request=request, events=answer(f"{number}" * 300_000))
                )
                assert stored.entry
            await eventually(lambda: full.persistence.tally.refused > 0, True)
            for number in range(12):
                assert await full.outcome(typed(f"q{number}")) == EXACT
    finally:
        server.stop()


async def test_without_the_store_answers_come_from_memory_and_are_kept_when_it_is_back(
    own_server: ValkeyServer,
) -> None:
    async with cache(own_server.url) as alone:
        own_server.stop()
        stored = await alone.stub.Store(cache_pb2.StoreRequest(request=typed("1"), events=answer("x")))
        assert stored.entry
        assert await alone.outcome(typed("1")) == EXACT
        assert await alone.outcome(typed("2")) == MISS
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await alone.stub.Invalidate(cache_pb2.InvalidateRequest(model="other"))
        assert from_rpc_error(refusal.value).name == "store_unavailable"
        own_server.start()
        await eventually(lambda: alone.kept(stored.entry), True)
        async with cache(own_server.url) as other:
            assert await other.outcome(typed("1")) == EXACT


async def test_what_was_wrong_while_the_store_was_away_does_not_come_back(own_server: ValkeyServer) -> None:
    async with cache(own_server.url) as alone:
        entry = await alone.put(typed("1"), "x")
        await alone.put(typed("2"), "x")
        own_server.stop()
        assert (await alone.stub.Feedback(cache_pb2.FeedbackRequest(entry=entry, good=False))).known
        assert await alone.outcome(typed("1")) == MISS
        own_server.start()
        await eventually(lambda: alone.persistence.keeper.removing(entry), False)
        async with cache(own_server.url) as other:
            assert await other.outcome(typed("1")) == MISS
            assert await other.outcome(typed("2")) == EXACT


async def test_h6_what_was_learned_of_a_tenant_outlives_the_process(valkey: Redis, valkey_server: ValkeyServer) -> None:
    settings = {"encoder": "auto", **QUIET}
    async with cache(valkey_server.url, **settings) as before, cache(valkey_server.url, node="b", **settings) as other:
        entry = await before.put(asks("How do I reset my password?"), "Click.")
        assert await before.outcome(asks("How can I reset my password?")) == ALIKE
        assert (await before.stub.Feedback(cache_pb2.FeedbackRequest(entry=entry, good=False))).known
        assert await before.outcome(asks("How can I reset my password?")) == MISS

        async def floor_at(cache_: Cache) -> float | None:
            return cache_.app._answers.likeness.standings.of(TENANT).wrong_hits.floor(entry)

        floor = await floor_at(before)
        assert floor is not None
        await eventually(lambda: floor_at(other), floor)
    async with cache(valkey_server.url, **settings) as after:
        assert await floor_at(after) == floor
        assert await after.outcome(asks("How can I reset my password?")) == MISS
        assert await after.outcome(asks("How do I reset my password?")) == EXACT


async def test_h6_the_ledger_and_the_counters_of_a_tenant_outlive_the_process_and_other_caches_know_them(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async def told(cache_: Cache) -> tuple[Any, ...]:
        stats = await cache_.stub.Stats(cache_pb2.StatsRequest(tenant=TENANT))
        exact = next(line for line in stats.savings.lines if line.name == "exact")
        return stats.hits, stats.misses, exact.count, exact.tokens, exact.money

    async with cache(valkey_server.url) as before:
        await before.put(typed("1"), "x")
        assert await before.outcome(typed("2")) == MISS
        for _ in range(3):
            assert await before.outcome(typed("1")) == EXACT
        known = await told(before)
        assert known[:3] == (3, 1, 3)
    assert 0 < await valkey.pttl(keys.cache_book(TENANT)) <= 30 * 86_400_000
    async with cache(valkey_server.url) as after, cache(valkey_server.url, node="b") as other:
        assert await told(after) == known
        assert await told(other) == known
        assert await after.outcome(typed("1")) == EXACT
        now = await told(after)
        assert now[2] == 4
        assert after.app._stored is not None
        await after.app._stored.settle(10)
        await eventually(lambda: told(other), now)
        # Metrics are those of a process.
        assert after.app._books.total.count("exact") == 1


async def test_another_encoder_makes_its_own_vectors_of_what_is_stored(start: Any, valkey: Redis) -> None:
    first = await start(encoder="auto", node="a", **QUIET)
    entry = await first.put(asks("How do I reset my password?"), "Click.")
    name = keys.cache_entry(TENANT, entry)
    stored = unpack_entry(await valkey.get(name))
    assert stored.alike is not None
    foreign = structs.replace(stored.alike, encoder="another", vector=b"\0" * 4 * 384)
    await valkey.set(name, pack_entry(structs.replace(stored, alike=foreign)), keepttl=True)
    second = await start(encoder="auto", node="b", **QUIET)
    await eventually(lambda: len(second.app._answers.likeness.partitions), 1)
    assert await second.outcome(asks("How can I reset my password?")) == ALIKE

    async def encoder() -> str:
        alike = unpack_entry(await valkey.get(name)).alike
        return alike.encoder if alike is not None else ""

    await eventually(encoder, stored.alike.encoder)


async def test_h6_a_burst_of_one_user_is_refused_without_an_error(start: Any) -> None:
    bounded = await start(user_inserts_per_minute=3)

    async def keep(number: int, user: str) -> str:
        request = typed(f"{user}{number}", metadata={"user": user})
        stored = await bounded.stub.Store(cache_pb2.StoreRequest(request=request, events=answer("x")))
        return str(stored.refused)

    assert [await keep(number, "a") for number in range(5)] == ["", "", "", "over_quota", "over_quota"]
    assert await keep(0, "b") == ""
    assert await bounded.outcome(typed("a0")) == EXACT
    assert await bounded.outcome(typed("a4")) == MISS
