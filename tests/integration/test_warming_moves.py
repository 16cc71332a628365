"""A worker joins: routers say who will come to it, it warms them, and their next turns find their KV there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from redis.asyncio import Redis

from services.inference_adapter.app import Adapter
from services.router.core.ring import Ring
from streamway.v1 import common_pb2, router_pb2
from streamway.valkey import keys
from tests.support.adapter_world import eventually
from tests.support.router_mesh import Mesh, ask, mesh, until
from tests.support.two_workers import simulated, worker
from tests.support.valkey_server import ValkeyServer

SESSIONS = 8


def _question(number: int) -> str:
    return f"Chapter {number} of the story begins with a bridge. " * 150


async def _turn(made: Mesh, number: int, answer: str = "") -> tuple[common_pb2.Accepted, str, common_pb2.Usage]:
    asked = ask(_question(number), model="simulated", session=str(number), tenant="t")
    asked.limits.max_tokens = 4
    if answer:
        asked.messages.add(role="assistant", content=answer)
        asked.messages.add(role="user", content="And then?")
    async with asyncio.timeout(20):
        call = made.stub.Generate(router_pb2.GenerateRequest(request=asked), metadata=made.metadata)
        events: list[common_pb2.Event] = [event async for response in call for event in response.events]
    text = "".join(event.token.text for event in events if event.HasField("token"))
    return events[0].accepted, text, events[-1].finished.usage


def _kept(valkey: Redis, session: str) -> Callable[[], Any]:
    return lambda: valkey.hexists(keys.session("t", session), "context:simulated")


def _warmed(adapter: Adapter) -> float:
    return adapter._registry.get_sample_value("streamway_warmed_prefixes_total", {"kind": "session"}) or 0.0


async def test_sessions_that_move_to_a_new_worker_find_their_kv_there(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with (
        worker(valkey_server.url, "w0", simulated()),
        mesh(valkey, valkey_server.url, workers=0, poll_s=0.05, moves_per_s=1000) as made,
    ):
        first = [await _turn(made, number) for number in range(SESSIONS)]
        # A name that is home to some of them.
        names = (f"w{number}" for number in range(1, 100))
        homes = {name: Ring({"w0", name}) for name in names}
        name, coming = next(
            (name, moved)
            for name, ring in homes.items()
            if len(moved := [n for n in range(SESSIONS) if next(ring.walk(first[n][0].session)) == name]) in (2, 3)
        )
        for accepted, _, _ in first:
            await eventually(_kept(valkey, accepted.session), True)
        async with worker(valkey_server.url, name, simulated(), warm_share=1.0) as new:
            await until(lambda: _warmed(new) == len(coming), 20)
            for number in coming:
                accepted, _, usage = await _turn(made, number, first[number][1])
                assert accepted.worker == name
                assert usage.prompt_tokens - usage.cached_prompt_tokens < 100 < usage.prompt_tokens
            hits = new._registry.get_sample_value("streamway_warm_hits_total", {"kind": "session"})
            assert hits == len(coming)
