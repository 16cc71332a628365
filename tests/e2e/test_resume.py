"""A generation wanders over surfaces and edges of a real mesh, and nothing of it is lost or told twice."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest
import websockets

from streamway.v1 import common_pb2, edge_pb2
from tests.support.clients import Frames, RawRequest, assert_positions_tile, sse, text_of
from tests.support.mesh import MeshProcesses

pytestmark = pytest.mark.timeout(180)
RESTORE = "X-Session-Restore-ID"


async def call(method: str, where: str, **options: Any) -> tuple[int, Any, Any]:
    async with aiohttp.ClientSession() as session, session.request(method, where, **options) as response:
        return response.status, response.headers, await response.json()


async def polled(mesh: MeshProcesses, generation: str, cursor: str) -> list[dict[str, Any]]:
    """Every event after a cursor, by long polls."""
    seen: list[dict[str, Any]] = []
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        while True:
            url = f"{mesh.edge_url}/v1/generations/{generation}/events"
            async with session.get(url, params={"after": cursor, "wait": "5"}) as response:
                body = await response.json()
                assert response.status == 200, body
            seen += body["events"]
            cursor = body["cursor"]
            if body["done"]:
                return seen


def ask(prompt: str, tokens: int = 40, **fields: Any) -> dict[str, Any]:
    params = {"max_tokens": tokens, "temperature": 0.0}
    messages = [{"role": "user", "content": prompt}]
    return {"model": "simulated", "messages": messages, "params": params, "cache": "off", **fields}


async def whole(mesh: MeshProcesses, prompt: str, tokens: int = 40) -> str:
    """The answer of an undisturbed run."""
    async with websockets.connect(mesh.websocket_url) as socket:
        client = Frames(socket)
        await client.send(type="open", id="w", **ask(prompt, tokens))
        return text_of(await client.until("finished"))


async def test_j1_from_a_websocket_over_server_sent_events_to_long_polls(mesh: MeshProcesses) -> None:
    prompt = "wander over the surfaces"
    expected = await whole(mesh, prompt)
    async with websockets.connect(mesh.websocket_url) as socket:
        client = Frames(socket)
        await client.send(type="open", id="a", **ask(prompt))
        seen = await client.until("token")
        socket.transport.abort()
    accepted = next(frame for frame in seen if frame["type"] == "accepted")
    assert accepted["durability"] == "relaxed"
    generation = accepted["generation"]
    epoch = next(frame for frame in seen if frame["type"] == "started")["epoch"]
    url = f"{mesh.edge_url}/v1/generations/{generation}/events"
    headers = {"Accept": "text/event-stream", "Last-Event-ID": f"{epoch}-{seen[-1]['position']}"}
    last = ""
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
        assert response.status == 200
        async for line in response.content:
            if line.startswith(b"id: "):
                last = line[4:].decode().strip()
            elif line.startswith(b"data: "):
                seen.append(json.loads(line[6:]))
                if last == f"{epoch}-{seen[-1].get('position')}" and len(seen) > 6:
                    break
    seen += await polled(mesh, generation, last)
    seen = [frame for frame in seen if frame["type"] != "resumed"]
    assert text_of(seen) == expected
    assert_positions_tile(seen)
    assert [frame["type"] for frame in seen].count("finished") == 1
    assert seen[-1]["usage"]["completion_tokens"] == 40


def cursors_of(seen: list[dict[str, Any]]) -> dict[str, str]:
    """Each cursor that a reader of these events had, and the text that was still to come."""
    epoch, left, told = 0, text_of(seen), {"0-0": text_of(seen)}
    for frame in seen:
        epoch = frame.get("epoch", epoch)
        if frame["type"] == "token":
            left = left.removeprefix(frame["text"])
        if "position" in frame:
            told[f"{epoch}-{frame['position']}"] = left
    return told


async def test_j1_from_each_cursor_on_each_surface_comes_what_was_still_to_come_and_one_end(
    mesh: MeshProcesses,
) -> None:
    """While it runs and when it has ended. The last tokens come with the end, and a reader may have both."""
    async with websockets.connect(mesh.websocket_url) as socket:
        client = Frames(socket)
        await client.send(type="open", id="a", **ask("each cursor", 30))
        begun = await client.until("token")
        generation = next(frame for frame in begun if frame["type"] == "accepted")["generation"]
        for number, cursor in enumerate(running := list(cursors_of(begun))):
            await client.send(type="resume", id=f"r{number}", generation=generation, after=cursor)
        names = ["a", *(f"r{number}" for number in range(len(running)))]
        seen = list(begun)
        while sum(frame["type"] == "finished" for frame in seen) < len(names):
            seen.append(await client.receive())
        told = cursors_of([frame for frame in seen if frame.get("id") == "a"])
        for number, cursor in enumerate(running):
            assert text_of(seen, f"r{number}") == told[cursor]
        ways: dict[str, list[list[dict[str, Any]]]] = {"websocket": [], "sse": [], "poll": []}
        for number, cursor in enumerate(told):
            await client.send(type="resume", id=f"e{number}", generation=generation, after=cursor)
            ways["websocket"].append(await client.until("finished", f"e{number}"))
    for cursor in told:
        events, _ = await sse(f"{mesh.edge_url}/v1/generations/{generation}/events?after={cursor}")
        ways["sse"].append(events)
        ways["poll"].append(await polled(mesh, generation, cursor))
    for way, answers in ways.items():
        for cursor, events in zip(told, answers, strict=True):
            assert text_of(events) == told[cursor], (way, cursor)
            types = [event["type"] for event in events]
            assert types.count("finished") == 1, (way, cursor, types)
            assert "diverged" not in types, (way, cursor)


async def test_a_restore_id_gives_everything_back_in_the_other_subprotocol(mesh: MeshProcesses) -> None:
    async with websockets.connect(mesh.websocket_url) as socket:
        client = Frames(socket)
        hello = await client.receive()
        for number in range(3):
            await client.send(type="open", id=str(number + 1), **ask(f"restore me {number}", 60))
        seen: list[dict[str, Any]] = []
        while len({frame["id"] for frame in seen if frame["type"] == "token"}) < 3:
            seen.append(await client.receive())
        socket.transport.abort()
    texts = {number: text_of(seen, str(number)) for number in (1, 2, 3)}
    positions = {number: max(f.get("position", 0) for f in seen if f.get("id") == str(number)) for number in (1, 2, 3)}
    epochs = {int(f["id"]): f["epoch"] for f in seen if f["type"] == "started"}
    generations = {int(f["id"]): f["generation"] for f in seen if f["type"] == "accepted"}
    ended: set[int] = set()
    async with websockets.connect(
        mesh.websocket_url, subprotocols=[websockets.Subprotocol("streamway.v1.proto")]
    ) as socket:
        after = {generations[n]: f"{epochs[n]}-{positions[n]}" for n in (1, 2, 3)}
        frame = edge_pb2.ClientFrame(restore=edge_pb2.RestoreFrame(restore_id=hello["restore_id"], after=after))
        await socket.send(frame.SerializeToString())
        async with asyncio.timeout(60):
            while len(ended) < 3:
                said = edge_pb2.ServerFrame.FromString(await socket.recv())
                if said.HasField("restored"):
                    assert {row.number: row.generation for row in said.restored.generations} == generations
                event: common_pb2.Event = said.event
                if event.HasField("token"):
                    assert (event.first_position or event.position) == positions[event.subscription] + 1
                    positions[event.subscription] = event.position
                    texts[event.subscription] += event.token.text
                elif event.HasField("finished"):
                    ended.add(event.subscription)
                assert not event.HasField("error"), event
    for number in (1, 2, 3):
        assert texts[number] == await whole(mesh, f"restore me {number - 1}", 60)


async def test_a_background_generation_with_a_key_is_made_once(mesh: MeshProcesses) -> None:
    asked = ask("in the background", 20, idempotency_key="background-1")
    status, headers, first = await call("POST", mesh.edge_url + "/v1/generations", json=asked)
    assert status == 202, first
    assert len(headers[RESTORE]) == 32
    status, _, second = await call("POST", mesh.edge_url + "/v1/generations", json=asked)
    assert (status, second["generation"]) == (202, first["generation"])
    seen = await polled(mesh, first["generation"], "0-0")
    assert_positions_tile(seen)
    assert seen[-1]["type"] == "finished"
    # And when it has ended: the same again, from its start.
    async with websockets.connect(mesh.websocket_url) as socket:
        client = Frames(socket)
        await client.send(type="open", id="again", **asked)
        again = await client.until("finished")
    assert text_of(again) == text_of(seen)
    assert next(f for f in again if f["type"] == "accepted")["attached_to"] == first["generation"]
    status, _, refused = await call(
        "POST", mesh.edge_url + "/v1/generations", json=ask("another question", 20, idempotency_key="background-1")
    )
    assert status == 409
    error = refused["error"]
    assert (error["code"], error["param"]) == ("idempotency_conflict", "idempotency_key")
    assert first["generation"] in error["message"]


async def test_a_background_generation_without_a_channel_is_read_where_its_answer_says(mesh: MeshProcesses) -> None:
    """From the beginning and by the cursor that was told, on both surfaces: only `accepted` is not told again."""
    expected = await whole(mesh, "without a channel", 20)
    for cursor in ("", "0-0", "0-1"):
        for read in (_by_events, polled):
            asked = ask("without a channel", 20, durability="off")
            _, _, told = await call("POST", mesh.edge_url + "/v1/generations", json=asked)
            assert (told["durability"], told["cursor"]) == ("off", "0-1")
            if read is polled and not cursor:
                continue
            seen = await read(mesh, told["generation"], cursor)
            assert text_of(seen) == expected, (cursor, read, seen)
            assert all(frame["recovered"] for frame in seen if frame["type"] == "resumed")
            assert seen[-1]["type"] == "finished"
            assert_positions_tile([{"type": "accepted", "position": 1}, *seen])


async def _by_events(mesh: MeshProcesses, generation: str, cursor: str) -> list[dict[str, Any]]:
    where = f"{mesh.edge_url}/v1/generations/{generation}/events"
    seen, _ = await sse(f"{where}?after={cursor}" if cursor else where)
    return seen


async def test_a4_a_delete_stops_what_nobody_reads_and_may_come_late(mesh: MeshProcesses) -> None:
    status, _, told = await call("POST", mesh.edge_url + "/v1/generations", json=ask("stop me", 4000))
    assert status == 202
    where = f"{mesh.edge_url}/v1/generations/{told['generation']}"
    await call("GET", f"{where}/events?wait=5")
    status, _, stopped = await call("DELETE", where)
    assert (status, stopped["generation"]) == (200, told["generation"])
    seen = await polled(mesh, told["generation"], "0-0")
    assert (seen[-1]["type"], seen[-1]["reason"]) == ("error", "cancelled")
    status, _, stopped = await call("DELETE", where)
    assert (status, stopped["state"]) == (200, "cancelled")


async def test_a_chat_completion_with_grace_is_read_on_by_its_cursor(mesh: MeshProcesses) -> None:
    body = {
        "model": "simulated",
        "messages": [{"role": "user", "content": "chat with grace"}],
        "max_tokens": 50,
        "temperature": 0.0,
        "stream": True,
    }
    headers = {"x-streamway-on-disconnect": "grace", "x-streamway-cache": "off"}
    request = await RawRequest.post(mesh.edge_url + "/v1/chat/completions", body, headers)
    assert await request.head() == 200
    block, text, last = "", "", ""
    async for chunk in request.chunks():
        block += chunk.decode()
        *events, block = block.split("\n\n")
        for event in events:
            for line in event.split("\n"):
                if line.startswith("id: "):
                    last = line[4:]
                elif line.startswith("data: "):
                    text += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
        if len(text) > 20:
            break
    request.cut()
    seen = await polled(mesh, request.headers["x-streamway-generation"], last)
    assert text + text_of(seen) == await whole(mesh, "chat with grace", 50)
