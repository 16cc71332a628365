"""The scripts on a real Valkey do what the model of them does."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from redis.asyncio import Redis

from streamway.quota import Account, Demand, Kind, Level, renew, reserve, send_settle
from streamway.runtime.clock import SystemClock
from streamway.runtime.tasks import TaskScope
from streamway.tenancy import UNLIMITED, Quota
from streamway.valkey import keys
from streamway.valkey.link import Link
from streamway.valkey.session import Session
from tests.support.valkey_server import ValkeyServer

LEASE_MS = 60_000


@pytest.fixture
async def session(valkey: Redis, valkey_server: ValkeyServer) -> AsyncIterator[Session]:
    link, scope = Link(valkey_server.url, SystemClock()), TaskScope("test")
    scope.spawn(link.run(), "link")
    yield await link.session()
    with suppress(asyncio.CancelledError):
        await scope.close()


def demand(id_: str, tokens: int = 10, quota: Quota = UNLIMITED, model: Quota = UNLIMITED, name: str = "m") -> Demand:
    return Demand(id_, "acme", name, tokens, quota, model)


async def settled(session: Session, wanted: Demand, requests_back: int = 0, tokens_back: int = 0) -> bool:
    reply: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    send_settle(session, wanted, requests_back, tokens_back, reply.set_result)
    return bool(await reply)


async def test_script_and_model_answer_the_same_whatever_comes(session: Session) -> None:
    chance = random.Random(7)
    # What flows in within nine seconds is less than one request and less than a hundred tokens, and decides nothing.
    quotas = [Quota(3, 6, 600), Quota(2), Quota(requests_per_minute=6), Quota(5, None, 600)]
    kinds: set[str] = set()
    for number, tenant in enumerate(quotas):
        models = {"m": Quota(1, 5, 500), "n": UNLIMITED}
        kinds |= await _side_by_side(session, chance, f"t{number}", tenant, models)
    assert kinds == {"", "concurrency", "requests_per_minute", "tokens_per_minute"}


async def _side_by_side(
    session: Session, chance: random.Random, name: str, tenant: Quota, models: dict[str, Quota]
) -> set[str]:
    model, live, kinds = Account(LEASE_MS, 1.0), list[Demand](), set[str]()
    for number in range(60):
        if chance.random() < 0.55:
            asked = chance.choice("mn")
            wanted = Demand(f"g{number}", name, asked, chance.choice([0, 100, 200, 700]), tenant, models[asked])
            ours, theirs = model.reserve(wanted, 0), await reserve(session, wanted, LEASE_MS, 1.0)
            assert _kind(ours.refusal) == _kind(theirs.refusal), number
            for mine, stored in zip(ours.levels, theirs.levels, strict=True):
                assert _near(mine, stored), number
            kinds.add(str(ours.refusal.kind) if ours.refusal is not None else "")
            if ours.refusal is None:
                live.append(wanted)
                # Asked again after a lost reply.
                assert (await reserve(session, wanted, LEASE_MS, 1.0)).refusal is None
        elif live:
            wanted = live.pop(chance.randrange(len(live)))
            requests, tokens = chance.choice([(0, 0), (0, wanted.tokens), (1, wanted.tokens), (0, -100)])
            assert model.settle(wanted, requests, tokens, 0)
            assert await settled(session, wanted, requests, tokens)
            assert not await settled(session, wanted, requests, tokens)
    return kinds


async def test_g1_slots_that_nobody_renews_are_free_within_the_lease(valkey: Redis, session: Session) -> None:
    quota = Quota(concurrency=100)
    for number in range(100):
        assert (await reserve(session, demand(f"g{number}", quota=quota), 800, 0.9)).refusal is None
    refused = (await reserve(session, demand("more", quota=quota), 800, 0.9)).refusal
    assert refused is not None
    assert refused.kind is Kind.CONCURRENCY
    until = time.monotonic() + 20
    freed = 0
    while freed < 99 and time.monotonic() < until:
        # One is renewed; the count never exceeds the limit meanwhile.
        assert await renew(session, [demand("g0", quota=quota)], 800) == 0
        freed += (await reserve(session, demand(f"new{freed}", quota=quota), 60_000, 0.9)).refusal is None
        assert await valkey.zcard(keys.quota_slots("acme")) <= 100
    assert freed == 99
    await renew(session, [demand("g0", quota=quota)], 60_000)
    assert (await reserve(session, demand("last", quota=quota), 60_000, 0.9)).refusal is not None


async def test_a_slot_that_was_lost_is_taken_again_where_there_is_room(valkey: Redis, session: Session) -> None:
    quota = Quota(concurrency=2)
    held = [demand("a", quota=quota), demand("b", quota=quota)]
    for one in held:
        await reserve(session, one, LEASE_MS, 0.9)
    await valkey.delete(keys.quota_slots("acme"))
    await reserve(session, demand("c", quota=quota), LEASE_MS, 0.9)
    assert await renew(session, held, LEASE_MS) == 1
    assert await valkey.zcard(keys.quota_slots("acme")) == 2


async def test_a_clock_that_went_back_ends_neither_filling_nor_leases(valkey: Redis, session: Session) -> None:
    quota = Quota(concurrency=1, tokens_per_minute=600_000)
    ahead = int(time.time() * 1000) + 3_600_000
    await valkey.hset(keys.quota("acme"), "tokens", f"0.0 {ahead}")
    await valkey.zadd(keys.quota_slots("acme"), {"earlier": ahead})
    refused = await reserve(session, demand("a", 100, quota), 500, 0.9)
    assert refused.refusal is not None
    assert refused.levels[0].tokens == 0
    async with asyncio.timeout(20):
        while (await reserve(session, demand("a", 100, quota), 500, 0.9)).refusal is not None:
            await asyncio.sleep(0.02)


async def test_what_is_full_again_is_forgotten_and_debt_is_not(valkey: Redis, session: Session) -> None:
    quota = Quota(tokens_per_minute=60)
    one = demand("a", 6, quota)
    await reserve(session, one, LEASE_MS, 0.9)
    assert 60_000 < await valkey.pttl(keys.quota("acme")) <= 66_100
    await settled(session, one, 0, -600)
    assert await valkey.pttl(keys.quota("acme")) > 600_000
    assert await valkey.exists(keys.quota_slots("acme"), keys.quota_slots("acme", "m")) == 0


def _kind(refusal: object) -> tuple[str, bool, bool] | None:
    if refusal is None:
        return None
    return (str(refusal.kind), refusal.of_model, refusal.retry_s is None)  # type: ignore[attr-defined]


def _near(mine: Level, stored: Level) -> bool:
    """The store's buckets fill a little while the test runs."""
    pairs = ((mine.requests, stored.requests, 1), (mine.tokens, stored.tokens, 100))
    return all(a is b or (a is not None and b is not None and -0.01 <= b - a < more) for a, b, more in pairs)
