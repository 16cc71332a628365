"""The subprotocol `streamway.v1.proto` on a real WebSocket, and heartbeats that find dead clients."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import websockets
from redis.asyncio import Redis
from websockets.asyncio.client import ClientConnection

from streamway.errors import from_status
from streamway.v1 import common_pb2, edge_pb2
from tests.integration.test_edge_websocket import raw_websocket
from tests.support.edge_world import edge_world
from tests.support.journaled import journaled_world
from tests.support.valkey_server import ValkeyServer

PROTO = websockets.Subprotocol("streamway.v1.proto")
JSON = websockets.Subprotocol("streamway.v1.json")


class Messages:
    """The binary subprotocol on a WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def send(self, **frame: Any) -> None:
        await self.socket.send(edge_pb2.ClientFrame(**frame).SerializeToString())

    async def open(self, number: int, prompt: str = "hi", **fields: Any) -> None:
        request = common_pb2.GenerationRequest(
            model="simulated", messages=[common_pb2.Message(role="user", content=prompt)], **fields
        )
        await self.send(open=edge_pb2.OpenFrame(number=number, request=request))

    async def receive(self, within_s: float = 10.0) -> edge_pb2.ServerFrame:
        data = await asyncio.wait_for(self.socket.recv(), within_s)
        assert isinstance(data, bytes)
        return edge_pb2.ServerFrame.FromString(data)

    async def until(self, kind: str) -> list[common_pb2.Event]:
        """Every event up to the first of `kind`."""
        seen: list[common_pb2.Event] = []
        while not seen or seen[-1].WhichOneof("event") != kind:
            frame = await self.receive()
            assert frame.WhichOneof("frame") == "event", frame
            seen.append(frame.event)
        return seen


async def test_a_generation_in_protobuf_from_open_to_resume(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with journaled_world(valkey, valkey_server.url) as world:
        first, second = await world.edge(), await world.edge()
        async with websockets.connect(f"ws://{first.address}/v1/stream", subprotocols=[PROTO, JSON]) as socket:
            assert socket.subprotocol == PROTO
            client = Messages(socket)
            hello = (await client.receive()).hello
            assert list(hello.models) == ["simulated"]
            await client.open(7, durability=common_pb2.DURABILITY_STRICT)
            answer = await world.answer()
            assert answer.request.durability == common_pb2.DURABILITY_STRICT
            await answer.say("Hel", "lo")
            seen = [await client.until("token"), await client.until("token")]
            assert {event.subscription for events in seen for event in events} == {7}
            accepted = seen[0][0]
            assert accepted.generation == answer.id
            assert accepted.accepted.durability == common_pb2.DURABILITY_RELAXED
            assert (accepted.accepted.worker, accepted.accepted.source) == ("hand", "")
        async with websockets.connect(f"ws://{second.address}/v1/stream", subprotocols=[PROTO]) as socket:
            client = Messages(socket)
            await client.receive()
            await client.send(restore=edge_pb2.RestoreFrame(restore_id=hello.restore_id))
            restored = (await client.receive()).restored
            assert [(row.number, row.generation, row.cursor) for row in restored.generations] == [
                (7, answer.id, answer.cursor)
            ]
            await answer.say(" world")
            await answer.end()
            events = await client.until("finished")
            assert [event.WhichOneof("event") for event in events] == ["resumed", "token", "finished"]
            assert events[0].resumed.recovered
            assert events[1].token.text == " world"
            assert (events[1].subscription, events[1].position, events[1].epoch) == (7, 5, answer.epoch)
            resume = edge_pb2.ResumeFrame(number=9, generation=answer.id, after=f"{answer.epoch}-3")
            await client.send(resume=resume)
            events = await client.until("finished")
            assert "".join(event.token.text for event in events) == "lo world"


async def test_the_kinds_are_not_mixed() -> None:
    async with edge_world() as world, websockets.connect(world.websocket_url, subprotocols=[PROTO]) as socket:
        client = Messages(socket)
        await client.receive()
        await socket.send('{"type":"ping"}')
        refused = (await client.receive()).refused
        assert from_status(refused.status).name == "malformed"
        await client.send(ping=edge_pb2.PingFrame(t=5))
        assert (await client.receive()).pong.t == 5
        await client.open(1)
        await client.until("accepted")
        await client.open(1)
        refused = (await client.receive()).refused
        assert (refused.number, from_status(refused.status).name) == (1, "duplicate_id")
        await client.send(cancel=edge_pb2.CancelFrame(number=3))
        refused = (await client.receive()).refused
        assert (refused.number, from_status(refused.status).name) == (3, "generation_not_found")


@pytest.mark.parametrize("answer_s", [0.1, 0.4])
async def test_c2_after_three_heartbeats_and_a_moment_a_silent_client_is_gone(answer_s: float) -> None:
    period = 0.4
    async with edge_world(heartbeat_s=period, heartbeat_answer_s=answer_s) as world:
        reader, writer, _ = await raw_websocket(world)
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(10):
            try:
                while await reader.read(4096):
                    pass
            except ConnectionError:
                pass
        took = asyncio.get_running_loop().time() - began
        assert 2 * period <= took <= 3 * period + answer_s + 1.0
        writer.close()


async def test_a_client_that_answers_late_is_not_dead() -> None:
    async with edge_world(heartbeat_s=0.3, heartbeat_answer_s=0.01) as world:
        reader, writer, _ = await raw_websocket(world)
        pong = b"\x8a\x80" + bytes(4)
        for _ in range(8):
            await asyncio.sleep(0.25)
            writer.write(pong)
        assert await world.metric("streamway_edge_connections", surface="websocket") == 1
        writer.close()
        await reader.read()
