"""A real router, and workers whose engines are known not to do something."""

from __future__ import annotations

import json
from typing import Any

from redis.asyncio import Redis

from streamway.v1 import common_pb2
from tests.support.journaling_worker import words
from tests.support.router_mesh import ask, mesh, until
from tests.support.takeover_mesh import takeover_mesh, text_of
from tests.support.valkey_server import ValkeyServer


def _asking(session: str, **body: Any) -> common_pb2.GenerationRequest:
    made = ask(session=session)
    made.openai_body = json.dumps(
        {"model": made.model, "messages": [{"role": "user", "content": "hi"}], **body}
    ).encode()
    return made


async def test_tools_go_to_a_worker_whose_engine_knows_them(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with mesh(valkey, valkey_server.url, workers=2, queue_limit=10_000) as made:
        made.workers[0].fields["cannot"] = "tools"
        await made.renew()
        await until(lambda: any(worker.cannot for worker in made.app._made().registry.all()))
        stream = made.connect()
        tool = {"type": "function", "function": {"name": "f"}}
        chosen = set()
        plain = set()
        for number in range(12):
            event = await stream.first(await stream.open(_asking(f"s{number}", tools=[tool])))
            chosen.add(event.accepted.worker)
            event = await stream.first(await stream.open(_asking(f"s{number}")))
            plain.add(event.accepted.worker)
        assert chosen == {"w1"}
        assert plain == {"w0", "w1"}


async def test_what_has_begun_is_moved_to_who_can_go_on_with_it(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with takeover_mesh(valkey_server.url, workers=3, tokens=60, pace_s=0.05) as ((made,), workers):
        stream = made.connect()
        generation = await stream.open(ask(), location=False)
        accepted = (await stream.first(generation)).accepted
        lost = next(w for w in workers if w.id == accepted.worker)
        unable, able = [w for w in workers if w is not lost]
        unable.fields["cannot"] = "continues"
        await unable.lease.renew()
        await made.look()
        await until(lambda: text_of(stream.of(generation)).count(" ") >= 3)
        await lost.stop()
        await until(lambda: "finished" in stream.kinds(generation), 20)
        assert text_of(stream.of(generation)) == words(60)
        assert able.began == [(generation, 2)]
        assert not unable.began
        await stream.close()
