"""Dictionaries that kept contexts are packed with: routers with a real worker on a simulated engine, and a real store."""

from __future__ import annotations

import random

import pytest
from redis.asyncio import Redis

from services.router.core import context_codec as codec
from services.router.core.context_table import Name
from services.router.io.context_store import digest_of
from services.router.io.contexts import Contexts
from streamway.errors import ContextNotFound
from streamway.v1 import common_pb2
from streamway.valkey import keys
from tests.integration.test_router_contexts import contexts, heard, run, turn, until_kept
from tests.support.valkey_server import ValkeyServer

START, APPEND = common_pb2.CONTEXT_USE_START, common_pb2.CONTEXT_USE_APPEND
_LINES = [
    f"To change the {thing}, open the settings, choose {thing.title()} and press Save; it takes two minutes. "
    for thing in ("password", "address", "language", "picture", "name", "plan", "card", "limit", "colour", "region")
]


def _said(seed: int) -> str:
    return "".join(random.Random(seed).choices(_LINES, k=30))


def _fill(kept: Contexts, tenant: str, count: int) -> None:
    for number in range(count):
        text = f'{{"role":"user","content":"{_said(number)}"}},'.encode()
        kept._table.put(Name(tenant, f"{number:032x}"), "v", [codec.pack(text)], kept._clock.monotonic())


async def _only(valkey: Redis) -> bytes:
    """The name of the tenant's only dictionary."""
    (name,) = await valkey.zrange(keys.context_dictionaries("acme"), 0, -1)
    assert isinstance(name, bytes)
    return name


async def _segment(valkey: Redis, tenant: str) -> bytes:
    """The only one of the conversation "chat"."""
    (segment,) = await valkey.lrange(keys.context_text(tenant, digest_of("chat")), 0, -1)
    assert isinstance(segment, bytes)
    return segment


async def test_a_tenants_contexts_are_packed_with_what_they_have_in_common(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with contexts(valkey_server.url, routers=2) as (meshes, engine):
        kept = [mesh.app._made().contexts for mesh in meshes]
        _fill(kept[0], "acme", 80)
        _fill(kept[1], "acme", 80)
        await kept[0].sweep()
        await kept[1].sweep()  # a second one looks whether it would be better: nobody does so within the hour
        name = await _only(valkey)
        dictionary = keys.context_dictionary("acme", name.hex())
        assert 500 < await valkey.strlen(dictionary) <= 49_152

        first, second = meshes[0].connect(), meshes[1].connect()
        said, text = _said(1_000), keys.context_text("acme", digest_of("chat"))
        await run(first, turn(START, ("user", said)))
        await until_kept(valkey, keys.context("acme", digest_of("chat")))
        segment = await _segment(valkey, "acme")
        assert codec.dictionaries_of([segment]) == {name}
        assert len(segment) < 0.8 * len(codec.pack(said.encode()))
        assert await valkey.pttl(dictionary) > await valkey.pttl(text) + 3_000_000

        # The other router has the dictionary from the store.
        await run(second, turn(APPEND, ("user", "and then?")))
        assert heard(engine.asked[-1])[0] == ("user", said)
        assert len(heard(engine.asked[-1])) == 3

        # Nobody else's contexts are packed with it.
        await run(first, turn(START, ("user", said), tenant="other"))
        await until_kept(valkey, keys.context("other", digest_of("chat")))
        segment = await _segment(valkey, "other")
        assert not codec.dictionaries_of([segment])
        await first.close()
        await second.close()


async def test_a_context_whose_dictionary_is_gone_is_refused_and_never_answered_without(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with contexts(valkey_server.url) as ((mesh,), engine):
        kept = mesh.app._made().contexts
        _fill(kept, "acme", 80)
        await kept.sweep()
        stream = mesh.connect()
        await run(stream, turn(START, ("user", _said(1_000))))
        await until_kept(valkey, keys.context("acme", digest_of("chat")))
        name = await _only(valkey)
        await valkey.delete(keys.context_dictionary("acme", name.hex()))
    asked = len(engine.asked)
    async with contexts(valkey_server.url) as ((mesh,), _engine):
        stream = mesh.connect()
        with pytest.raises(ContextNotFound, match="damaged"):
            await run(stream, turn(APPEND))
        # It begins anew, without a dictionary.
        await run(stream, turn(START, ("user", _said(1_000))))
        await until_kept(valkey, keys.context("acme", digest_of("chat")))
        await stream.close()
    assert len(engine.asked) == asked
