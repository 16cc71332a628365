"""F4: many generations whose worker cannot be reached are followed in the store, through one connection that blocks."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import websockets
from redis.asyncio import Redis

from tests.support.clients import Frames
from tests.support.hand_router import accepted
from tests.support.journaled import RELAXED, Answer, journaled_world
from tests.support.ports import free_port
from tests.support.valkey_server import ValkeyServer

CHANNELS = 500
# What a connection says when it is made, and what a follower says.
OF_A_FOLLOWER = {"PING", "CLIENT ID", "XREAD"}


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    """A store on TCP, so that its clients can be told apart by their address."""
    port = free_port()
    server = ValkeyServer(tmp_path, "--port", str(port))
    yield f"redis://127.0.0.1:{port}"
    server.stop()


async def test_f4_five_hundred_channels_are_followed_through_one_connection(url: str) -> None:
    valkey: Redis = Redis.from_url(url)
    async with journaled_world(valkey, url) as world:
        nowhere = f"127.0.0.1:{free_port()}"
        world.router.answer = lambda request: [accepted(request, "hand", nowhere, durability=RELAXED)]
        world.source = nowhere
        said: dict[str, set[str]] = defaultdict(set)
        watching: Redis = Redis.from_url(url)
        async with watching.monitor() as monitor:

            async def watch() -> None:
                async for line in monitor.listen():
                    words = line["command"].upper().split()
                    name = " ".join(words[:2]) if words[0] == "CLIENT" else words[0]
                    said[f"{line['client_address']}:{line['client_port']}"].add(name)

            watcher = asyncio.ensure_future(watch())
            edge = await world.edge(reattach_s=2.0, takeover_wait_s=600)
            before = len(await valkey.client_list())
            async with websockets.connect(f"ws://{edge.address}/v1/stream", max_size=None, max_queue=None) as socket:
                client = Frames(socket)
                await client.receive()
                answers: dict[str, Answer] = {}
                for number in range(CHANNELS):
                    await client.open(f"g{number}", "hi")
                    answers[f"g{number}"] = made = Answer(world, await world.router.asked(number + 1))
                    made.source = nowhere
                    await made.accept()
                    await made.begin(live=False)
                waiting = set(answers)
                for name, answer in answers.items():
                    await answer.say(f"hello {name}", live=False)
                async with asyncio.timeout(60):
                    while waiting:
                        frame = await client.receive(60)
                        if frame["type"] == "token":
                            assert frame["text"] == f"hello {frame['id']}"
                            waiting.remove(frame["id"])
                assert len(await valkey.client_list()) <= before
                # All of them at once, and again in order.
                for answer in answers.values():
                    await answer.say("!", live=False)
                    await answer.end(live=False)
                over = set(answers)
                async with asyncio.timeout(60):
                    while over:
                        frame = await client.receive(60)
                        if frame["type"] == "finished":
                            over.remove(frame["id"])
                assert len(await valkey.client_list()) <= before
            watcher.cancel()
            await asyncio.wait({watcher})
        await watching.aclose()
    await valkey.aclose()
    blocking = {address: names for address, names in said.items() if "XREAD" in names}
    assert len(blocking) == 1
    assert all(names <= OF_A_FOLLOWER for names in blocking.values()), blocking
