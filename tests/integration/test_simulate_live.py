"""The simulation's live client against a router and workers with real gRPC and a real Valkey."""

from __future__ import annotations

from dataclasses import replace

from redis.asyncio import Redis

from benchmarks.simulate.live import LiveClient
from benchmarks.simulate.results import summarize
from benchmarks.simulate.scenario import LIVE
from benchmarks.simulate.world import World
from tests.support.router_mesh import mesh, until
from tests.support.two_workers import simulated, worker
from tests.support.valkey_server import ValkeyServer


async def test_the_same_turns_live_and_in_virtual_time_find_the_same_in_kv(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    scenario = replace(LIVE, workers=2, turns_per_s=5, duration_s=4, sessions=6, answer_tokens=(5, 15))
    url = valkey_server.url
    async with (
        worker(url, "adapter-0", simulated(rate=0)),
        worker(url, "adapter-1", simulated(rate=0)),
        mesh(valkey, url, workers=0, poll_s=0.1) as made,
    ):
        await until(lambda: len(made.app._made().registry.all()) == 2)
        live = await LiveClient(scenario).run(made.app.address)
    virtual = World(scenario).run()
    assert len(live) == len(virtual) == len(list(scenario.turns()))
    assert all(one.first_at >= one.asked_at and one.made_tokens > 0 and not one.refused for one in live)
    told, simulated_ = summarize(live, []), summarize(virtual, [])
    assert told.same_worker >= 0.8
    assert abs(told.kv_hits - simulated_.kv_hits) < 0.15
