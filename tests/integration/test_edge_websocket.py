"""The WebSocket surface of the edge, through the `websockets` package, over real gRPC."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import websockets

from streamway.auth import hash_key
from streamway.errors import QueueFull
from streamway.v1 import common_pb2
from tests.support.clients import Frames, assert_positions_tile, frames, text_of
from tests.support.edge_world import EdgeWorld, edge_world
from tests.support.hand_router import refused
from tests.support.inference_service import finished, started, token

SUBPROTOCOL = websockets.Subprotocol("streamway.v1.json")


async def refusal(url: str, **options: Any) -> tuple[int, dict[str, Any]]:
    """Status and body of a handshake that must fail."""
    with pytest.raises(websockets.InvalidStatus) as caught:
        async with websockets.connect(url, **options):
            pass
    response = caught.value.response
    return response.status_code, json.loads(response.body or b"{}")


async def test_one_generation_from_open_to_finished() -> None:
    async with edge_world() as world, frames(world.websocket_url) as client:
        await client.open("a", "hi", params={"temperature": 0.5, "max_tokens": 5, "n": 1}, session="me", priority=-1)
        request = await world.router.asked()
        world.speak(request.generation, "Hel", "lo", "!")
        seen = await client.until("finished")
    kinds = [frame["type"] for frame in seen]
    assert kinds == ["accepted", "started", "token", "token", "token", "choice_finished", "finished"]
    assert seen[0]["generation"] == request.generation
    assert seen[0]["durability"] == "off"
    assert seen[1]["worker"] == "hand"
    assert text_of(seen, "a") == "Hello!"
    assert seen[-1]["usage"]["completion_tokens"] == 3
    assert seen[-1]["finish_reason"] == "stop"
    assert_positions_tile(seen, "a")
    assert request.priority == -1
    assert request.sampling.temperature == 0.5
    assert request.limits.max_tokens == 5
    assert len(request.session) == 16


async def test_hello_names_the_session_of_this_connection() -> None:
    async with edge_world() as world:
        async with websockets.connect(world.websocket_url, subprotocols=[SUBPROTOCOL]) as socket:
            hello = json.loads(await socket.recv())
            assert socket.subprotocol == SUBPROTOCOL
            key = socket.request.headers["Sec-WebSocket-Key"]
            await Frames(socket).open("a", "hi")
            request = await world.router.asked()
        assert hello["session"] == hashlib.sha256(f"127.0.0.1{key}".encode()).digest()[:8].hex() == request.session
        assert hello["models"] == ["simulated"]
        assert (hello["heartbeat_ms"], hello["grace_ms"]) == (15000, 30000)
        assert len(hello["restore_id"]) == 32
        async with frames(world.websocket_url, additional_headers={"x-session-id": hello["session"]}) as client:
            await client.open("b", "again")
            assert (await world.router.asked(2)).session == hello["session"]


async def test_no_subprotocol_means_json_and_another_one_is_refused() -> None:
    async with edge_world() as world:
        async with websockets.connect(world.websocket_url) as socket:
            assert json.loads(await socket.recv())["type"] == "hello"
        status, body = await refusal(world.websocket_url, subprotocols=[websockets.Subprotocol("graphql-ws")])
    assert status == 400
    assert "streamway.v1.json" in body["error"]["message"]


async def test_a_hundred_generations_side_by_side_do_not_mix() -> None:
    async with edge_world() as world, frames(world.websocket_url) as client:
        for number in range(100):
            await client.open(f"g{number}", f"question {number}")
        await world.router.asked(100)
        for request in world.router.opened:
            name = request.messages[0].content.split()[1]
            world.speak(request.generation, f"<{name}", ">")
        seen: list[dict[str, Any]] = []
        while sum(frame["type"] == "finished" for frame in seen) < 100:
            seen.append(await client.receive())
    for number in range(100):
        assert text_of(seen, f"g{number}") == f"<{number}>"
        assert_positions_tile(seen, f"g{number}")


async def test_cancel_reaches_the_router_and_the_error_comes_back() -> None:
    async with edge_world() as world, frames(world.websocket_url) as client:
        world.router.answer = lambda _: None
        await client.open("a", "hi")
        request = await world.router.asked()
        await client.send(type="cancel", id="a")
        await world.router.until(lambda: world.router.cancelled == [request.generation])
        from streamway.errors import Cancelled

        world.router.say(refused(request, Cancelled()))
        error = (await client.until("error"))[-1]
    assert (error["id"], error["reason"], error["retryable"]) == ("a", "cancelled", False)
    assert error["delivered_until"] == 0


async def test_without_a_router_the_cancel_goes_to_the_worker() -> None:
    async with edge_world() as world, frames(world.websocket_url) as client:
        await client.open("a", "hi")
        request = await world.router.asked()
        world.worker.push(request.generation, started(), token(3, "x"))
        await client.until("token")
        assert world.router_server is not None
        await world.router_server.stop()
        await asyncio.sleep(0.2)
        await client.send(type="cancel", id="a")
        async with asyncio.timeout(20):
            while world.worker.cancelled != [request.generation]:
                await asyncio.sleep(0.02)


async def test_killing_the_router_stalls_no_running_stream() -> None:
    async with edge_world() as world, frames(world.websocket_url) as client:
        await client.open("a", "hi")
        request = await world.router.asked()
        world.worker.push(request.generation, started(), token(3, "x"))
        await client.until("token")
        world.router.break_streams()
        await asyncio.sleep(0.05)
        world.worker.push(request.generation, token(4, "y"), finished(5))
        assert text_of(await client.until("finished")) == "y"


async def test_a_generation_not_yet_accepted_is_opened_again_with_its_id() -> None:
    async with edge_world() as world, frames(world.websocket_url) as client:
        world.router.answer = lambda _: None
        await client.open("a", "hi")
        first = await world.router.asked()
        world.router.answer = world.router.locate
        world.router.break_streams()
        second = await world.router.asked(2)
        assert first.generation == second.generation
        world.speak(second.generation, "ok")
        assert text_of(await client.until("finished")) == "ok"


async def test_no_router_at_all_is_an_error_after_the_wait() -> None:
    async with edge_world(router_wait_s=0.3) as world, frames(world.websocket_url) as client:
        assert world.router_server is not None
        await world.router_server.stop()
        await asyncio.sleep(0.2)
        await client.open("a", "hi")
        error = (await client.until("error"))[-1]
    assert (error["reason"], error["retryable"], error["retry_after_ms"]) == ("router_unavailable", True, 1000)


async def test_a_silent_router_is_given_up() -> None:
    async with edge_world(router_wait_s=0.2, router_answer_s=0.5) as world, frames(world.websocket_url) as client:
        world.router.answer = lambda _: None
        await client.open("a", "hi")
        assert (await client.until("error"))[-1]["reason"] == "router_unavailable"


async def test_a_deadline_ends_a_generation() -> None:
    async with edge_world() as world, frames(world.websocket_url) as client:
        await client.open("a", "hi", deadline_ms=200)
        request = await world.router.asked()
        assert (await client.until("error"))[-1]["reason"] == "deadline_exceeded"
        await world.router.until(lambda: world.router.cancelled == [request.generation])


async def test_the_same_id_may_not_live_twice_but_may_come_again() -> None:
    async with edge_world() as world, frames(world.websocket_url) as client:
        await client.open("a", "hi")
        await client.until("accepted")
        await client.open("a", "hi")
        error = (await client.until("error"))[-1]
        assert (error["id"], error["reason"]) == ("a", "duplicate_id")
        assert "delivered_until" not in error
        world.speak(world.router.opened[0].generation, "one")
        await client.until("finished")
        await client.open("a", "hi")
        await client.until("accepted")
        assert len(world.router.opened) == 2


async def test_too_many_generations_are_refused_one_by_one() -> None:
    async with edge_world(max_generations=2) as world, frames(world.websocket_url) as client:
        for name in "abc":
            await client.open(name, "hi")
        error = (await client.until("error"))[-1]
        assert (error["id"], error["reason"], error["retryable"]) == ("c", "too_many_generations", True)


@pytest.mark.parametrize(
    ("frame", "id_", "reason", "names"),
    [
        ("{", None, "malformed", "frame"),
        ("[1]", None, "invalid_argument", "frame"),
        ('"x"', None, "invalid_argument", "frame"),
        ('{"type":"resume","id":"q"}', "q", "invalid_argument", "generation"),
        ('{"type":"resume","id":"q","generation":"g","after":"7"}', "q", "invalid_argument", "after"),
        ('{"type":"resume","id":"q","generation":"g"}', "q", "generation_not_found", "'g'"),
        ('{"type":"restore"}', None, "invalid_argument", "restore_id"),
        ('{"type":"subscribe","id":"q"}', "q", "invalid_argument", "'subscribe' is unknown"),
        ('{"id":"q"}', "q", "invalid_argument", "type"),
        ('{"type":5}', None, "invalid_argument", "type"),
        (
            '{"type":"open","id":"q","model":"m","messages":[{"role":"user","content":"x"}],"foo":1}',
            "q",
            "invalid_argument",
            "foo",
        ),
        ('{"type":"open","id":"q","model":"m","messages":[]}', "q", "invalid_argument", "messages"),
        ('{"type":"open","id":"q","model":"m"}', "q", "invalid_argument", "messages"),
        ('{"type":"open","id":7,"model":"m"}', None, "invalid_argument", "id"),
        (
            '{"type":"open","id":"q","model":"m","messages":[{"role":"user","content":1}]}',
            "q",
            "invalid_argument",
            "messages[0].content",
        ),
        (
            '{"type":"open","id":"q","model":"m","messages":[{"role":"user","content":"x"}],"params":{"max_tokens":-1}}',
            "q",
            "invalid_argument",
            "params.max_tokens",
        ),
        (
            '{"type":"open","id":"q","model":"m","messages":[{"role":"user","content":"x"}],"params":{"temp":1}}',
            "q",
            "invalid_argument",
            "params.temp",
        ),
        ('{"type":"cancel","id":"nobody"}', "nobody", "generation_not_found", "nobody"),
    ],
)
async def test_bad_frames_get_an_error_that_names_the_fault(
    frame: str, id_: str | None, reason: str, names: str
) -> None:
    async with edge_world() as world, frames(world.websocket_url) as client:
        await client.socket.send(frame)
        error = (await client.until("error"))[-1]
        assert error.get("id") == id_
        assert error["reason"] == reason
        assert names in error["message"], error
        await client.send(type="ping", t=1)
        assert (await client.receive()) == {"type": "pong", "t": 1}


async def test_a_binary_frame_is_an_error_and_the_connection_lives() -> None:
    async with edge_world() as world, frames(world.websocket_url) as client:
        await client.socket.send(b"\x00\xff")
        assert (await client.until("error"))[-1]["reason"] == "malformed"
        await client.open("a", "hi")
        await client.until("accepted")


async def test_a_refusal_of_the_router_is_an_error_of_that_generation() -> None:
    async with edge_world() as world, frames(world.websocket_url) as client:
        world.router.answer = lambda request: [refused(request, QueueFull("simulated", 2.0))]
        await client.open("a", "hi")
        error = (await client.until("error"))[-1]
        assert (error["reason"], error["retry_after_ms"]) == ("queue_full", 2000)


async def test_heartbeats_come_in_json_and_as_pings() -> None:
    async with edge_world(heartbeat_s=0.3) as world, frames(world.websocket_url) as client:
        for _ in range(6):
            assert await client.receive(20) == {"type": "heartbeat"}


async def test_a_client_that_answers_no_ping_is_dropped() -> None:
    async with edge_world(heartbeat_s=0.3, missed_heartbeats=2) as world:
        reader, writer, _ = await raw_websocket(world)
        async with asyncio.timeout(20):
            while await reader.read(4096):
                pass
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def raw_websocket(world: EdgeWorld, host: str = "") -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    """A WebSocket that does nothing by itself, and the head of the answer to its handshake."""
    address, port = world.edge.address.split(":")
    reader, writer = await asyncio.open_connection(address, int(port))
    key = base64.b64encode(b"0123456789abcdef").decode()
    writer.write(
        f"GET /v1/stream HTTP/1.1\r\nHost: {host or world.edge.address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    return reader, writer, await reader.readuntil(b"\r\n\r\n")


def masked(text: str) -> bytes:
    """A client's text frame with an all-zero mask."""
    raw = text.encode()
    assert len(raw) < 65536
    head = bytes([0x81, 0x80 | len(raw)]) if len(raw) < 126 else b"\x81\xfe" + len(raw).to_bytes(2, "big")
    return head + bytes(4) + raw


async def test_c4_a_half_closed_socket_is_a_gone_client() -> None:
    async with edge_world() as world:
        _, writer, _ = await raw_websocket(world)
        body: dict[str, Any] = {"type": "open", "id": "a", "model": "simulated"}
        body["messages"] = [{"role": "user", "content": "x"}]
        body["on_disconnect"] = "cancel"
        writer.write(masked(json.dumps(body)))
        request = await world.router.asked()
        writer.write_eof()
        await world.router.until(lambda: world.router.cancelled == [request.generation])
        assert await world.metric("streamway_edge_abnormal_closes_total") == 1
        assert await world.metric("streamway_edge_connections", surface="websocket") == 0
        writer.close()


async def test_f3_a_client_that_does_not_read_is_closed_with_4009_and_the_others_go_on() -> None:
    async with edge_world(slow_bytes=64 * 1024, slow_s=0.5, socket_send_bytes=16384) as world:
        slow = await websockets.connect(world.websocket_url, max_queue=1, ping_interval=None)
        await slow.recv()
        await Frames(slow).open("s", "much", on_disconnect="cancel")
        big = await world.router.asked()
        slow.transport.pause_reading()
        world.worker.push(big.generation, started(), *(token(3 + i, "x" * 20_000) for i in range(400)))
        async with frames(world.websocket_url) as client:
            await client.open("a", "hi")
            other = await world.router.asked(2)
            world.speak(other.generation, "ok")
            await client.until("finished", within_s=20)
            await world.router.until(lambda: big.generation in world.router.cancelled)
        assert await world.metric("streamway_edge_slow_consumers_total") == 1
        slow.transport.abort()


async def test_a_slow_client_that_reads_on_sees_the_4009() -> None:
    async with edge_world(slow_bytes=64 * 1024, slow_s=0.3, socket_send_bytes=16384) as world:
        slow = await websockets.connect(world.websocket_url, max_queue=1, ping_interval=None)
        await slow.recv()
        await Frames(slow).open("s", "much", on_disconnect="cancel")
        big = await world.router.asked()
        slow.transport.pause_reading()
        world.worker.push(big.generation, started(), *(token(3 + i, "x" * 20_000) for i in range(200)))
        await world.router.until(lambda: big.generation in world.router.cancelled)
        slow.transport.resume_reading()
        with pytest.raises(websockets.ConnectionClosed):
            while True:
                await asyncio.wait_for(slow.recv(), 20)
        assert slow.close_code == 4009


async def test_over_long_frames_close_the_connection_with_1009() -> None:
    async with edge_world(max_frame_bytes=2048) as world, frames(world.websocket_url) as client:
        await client.socket.send("x" * 4000)
        await asyncio.wait_for(client.socket.wait_closed(), 20)
        assert client.socket.close_code == 1009


async def test_l1_a_draining_edge_lets_live_ones_finish_and_takes_nothing_new() -> None:
    async with edge_world() as world, frames(world.websocket_url) as idle, frames(world.websocket_url) as client:
        await client.open("a", "hi")
        request = await world.router.asked()
        world.worker.push(request.generation, started(), token(3, "x"))
        await client.until("token")
        async with asyncio.TaskGroup() as group:
            group.create_task(world.edge.drain())
            assert (await client.until("going_away"))[-1]["retry_after_ms"] == 1000
            await client.open("b", "late")
            assert (await client.until("error"))[-1]["reason"] == "going_away"
            await asyncio.wait_for(idle.socket.wait_closed(), 20)
            assert idle.socket.close_code == 1001
            world.worker.push(request.generation, token(4, "y"), finished(5))
            await client.until("finished", "a")
            await asyncio.wait_for(client.socket.wait_closed(), 20)
            assert client.socket.close_code == 1001


async def test_after_the_grace_what_still_runs_is_ended() -> None:
    async with edge_world(drain_grace_s=0.3) as world, frames(world.websocket_url) as client:
        await client.open("a", "hi")
        request = await world.router.asked()
        world.worker.push(request.generation, started(), token(3, "x"))
        await client.until("token")
        await world.edge.drain()
        error = (await client.until("error"))[-1]
        assert (error["id"], error["reason"], error["delivered_until"]) == ("a", "going_away", 3)
        await asyncio.wait_for(client.socket.wait_closed(), 20)
        await world.router.until(lambda: world.router.cancelled == [request.generation])


async def test_keys_come_in_a_header_or_as_a_subprotocol(tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_text(f"keys:\n  - hash: {hash_key('sk-ü')}\n    tenant: acme\n", encoding="utf-8")
    async with edge_world({"api_keys_file": keys, "mesh_token": "t"}) as world:
        status, body = await refusal(world.websocket_url)
        assert (status, body["error"]["code"]) == (401, "unauthenticated")
        status, _ = await refusal(world.websocket_url, additional_headers={"Authorization": "Bearer nope"})
        assert status == 401
        encoded = base64.urlsafe_b64encode("sk-ü".encode()).decode().rstrip("=")
        offers = [SUBPROTOCOL, websockets.Subprotocol(f"streamway.auth.{encoded}")]
        async with websockets.connect(world.websocket_url, subprotocols=offers) as socket:
            assert socket.subprotocol == SUBPROTOCOL
            await socket.recv()
            await Frames(socket).open("a", "hi")
            assert (await world.router.asked()).tenant == "acme"
        assert world.router.metadata[0]["x-streamway-mesh-token"] == "t"


async def test_pages_of_other_sites_may_not_connect() -> None:
    async with edge_world(allowed_origins=["https://chat.example"]) as world:
        status, body = await refusal(world.websocket_url, origin="https://evil.example")
        assert (status, body["error"]["code"]) == (403, "forbidden")
        for origin in (world.url, "https://chat.example"):
            async with websockets.connect(world.websocket_url, origin=websockets.Origin(origin)) as socket:
                await socket.recv()
        _, writer, status = await raw_websocket(world, host="evil.example:80")
        assert b" 403 " in status
        writer.close()


async def test_merged_and_structured_pieces_keep_their_place() -> None:
    async with edge_world() as world, frames(world.websocket_url) as client:
        await client.open("50% off", "hi")
        request = await world.router.asked()
        merged = token(6, "abcd")
        merged.first_position, merged.token.units = 3, 4
        raw = common_pb2.Event(
            position=7, epoch=1 << 20, token=common_pb2.Token(raw_delta=b'{"delta":{"x":1}}', units=1)
        )
        last = common_pb2.Event(position=8, epoch=1 << 20, token=common_pb2.Token(units=1))
        last.token.choice_finished.finish_reason = "length"
        world.worker.push(request.generation, started(), merged, raw, last, finished(9))
        seen = await client.until("finished")
    assert_positions_tile(seen, "50% off")
    assert next(frame for frame in seen if "first_position" in frame)["first_position"] == 3
    assert next(frame for frame in seen if "raw_delta" in frame)["raw_delta"] == {"delta": {"x": 1}}
    assert [frame for frame in seen if frame["type"] == "choice_finished"] == [
        {"type": "choice_finished", "id": "50% off", "choice": 0, "position": 8, "finish_reason": "length"}
    ]
