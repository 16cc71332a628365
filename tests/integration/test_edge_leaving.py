"""Clients that leave, on every surface: what is counted, what goes on for its grace, what is cancelled."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
from redis.asyncio import Redis

from services.edge.app import Edge
from services.edge.io.outbox import Outbox
from tests.support.clients import RawRequest, chat_body, connect, frames
from tests.support.journaled import Answer, JournaledWorld, journaled_world
from tests.support.valkey_server import ValkeyServer

SSE = {"Accept": "text/event-stream"}
GRACE = {"x-streamway-on-disconnect": "grace"}
# How every surface is asked for something that streams; the polls wait for their next event.
STREAMS = ("chat", "chat, grace", "responses", "generations")
SURFACES = (*STREAMS, "poll", "websocket")
# Surfaces whose generation a client that leaves has cancelled.
CANCELLED = ("chat", "responses")


@pytest.fixture
async def world(valkey: Redis, valkey_server: ValkeyServer) -> AsyncIterator[JournaledWorld]:
    async with journaled_world(valkey, valkey_server.url) as made:
        yield made


class Reading:
    """One generation, read on one surface by a client on a raw socket."""

    def __init__(self, answer: Answer, writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
        self.answer = answer
        self.writer = writer
        self.reader = reader


async def read_on(world: JournaledWorld, edge: Edge, surface: str, *texts: str, small: int = 0) -> Reading:
    """Begins a generation that has said something and is read on a surface. `small`: bytes the client's kernel holds."""
    base = f"http://{edge.address}"
    if surface == "websocket":
        reader, writer = await connect(edge.address, small)
        RawRequest(reader, writer)
        writer.write(HANDSHAKE % edge.address.encode())
        await reader.readuntil(b"\r\n\r\n")
        writer.write(masked(b'{"type":"open","id":"a","model":"simulated","messages":[{"role":"user","content":"x"}]}'))
        answer = await world.answer()
        await answer.say(*texts)
        await reader.readuntil(texts[-1].encode())
        return Reading(answer, writer, reader)
    if surface in ("generations", "poll"):
        asked = {"model": "simulated", "messages": [{"role": "user", "content": "x"}]}
        async with aiohttp.ClientSession() as session:
            begun = asyncio.ensure_future(session.post(f"{base}/v1/generations", json=asked))
            answer = await world.answer()
            where = base + (await (await begun).json())["events_url"]
        await answer.say(*texts)
        if surface == "poll":
            request = await RawRequest.get(f"{where}?wait=60&after={answer.cursor}")
            await until(lambda: readers(world, answer) == 1)
            return Reading(answer, request.writer, request.reader)
        request = await RawRequest.get(where, SSE, small)
    else:
        body: dict[str, Any] = {"model": "simulated", "input": "x", "stream": True}
        path, headers = "/v1/responses", {}
        if surface != "responses":
            body, path = chat_body("x", stream=True), "/v1/chat/completions"
            headers = GRACE if surface == "chat, grace" else {}
        request = await RawRequest.post(base + path, body, headers, small)
        answer = await world.answer()
        await answer.say(*texts)
    assert await request.head() == 200
    await request.reader.readuntil(texts[-1].encode())
    return Reading(answer, request.writer, request.reader)


HANDSHAKE = (
    b"GET /v1/stream HTTP/1.1\r\nHost: %b\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def masked(text: bytes) -> bytes:
    """A text frame of a client, with a mask of zeros."""
    return b"\x81\xfe" + len(text).to_bytes(2, "big") + bytes(4) + text


def readers(world: JournaledWorld, answer: Answer) -> int:
    """Live subscriptions of a generation."""
    streams = world.worker._readers
    return sum(each.generation == answer.id for stream in streams for each in stream.subscriptions.values())


async def until(true: Any, within_s: float = 20.0) -> None:
    async with asyncio.timeout(within_s):
        while not true():
            await asyncio.sleep(0.01)


async def metric(edge: Edge, name: str) -> float:
    """The sum over all labels."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{edge.operations_address}/metrics") as response,
    ):
        lines = (await response.text()).splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


async def assert_left(world: JournaledWorld, edge: Edge, surface: str, answer: Answer) -> None:
    """Nothing of the client is left, and its generation is cancelled or waits for it."""
    await until(lambda: readers(world, answer) == 0)
    async with asyncio.timeout(10):
        while await metric(edge, "streamway_edge_live_generations") or await metric(edge, "streamway_edge_connections"):
            await asyncio.sleep(0.02)
    assert await metric(edge, "streamway_edge_abnormal_closes_total") == 1
    if surface in CANCELLED:
        await until(lambda: answer.id in world.router.cancelled + world.worker.cancelled)
    else:
        assert not world.router.cancelled
        assert not world.worker.cancelled


@pytest.mark.parametrize("surface", SURFACES)
async def test_c4_a_half_closed_client_is_a_gone_client_on_every_surface(world: JournaledWorld, surface: str) -> None:
    edge = await world.edge()
    reading = await read_on(world, edge, surface, "one")
    reading.writer.write_eof()
    await assert_left(world, edge, surface, reading.answer)
    assert await asyncio.wait_for(reading.reader.read(), 10) is not None
    cpu = time.process_time()
    await asyncio.sleep(0.5)
    assert time.process_time() - cpu < 0.25, "the edge spins on a half-closed connection"


@pytest.mark.parametrize("surface", SURFACES)
async def test_a1_a_cut_client_is_a_gone_client_on_every_surface(world: JournaledWorld, surface: str) -> None:
    edge = await world.edge()
    reading = await read_on(world, edge, surface, "one")
    reading.writer.transport.abort()
    await assert_left(world, edge, surface, reading.answer)


@pytest.mark.parametrize("surface", [*STREAMS, "websocket"])
async def test_c4_a_client_that_reads_nothing_and_half_closes_holds_nothing(
    world: JournaledWorld, surface: str
) -> None:
    edge = await world.edge(slow_bytes=32 * 1024, socket_send_bytes=16384, slow_client_s=600)
    reading = await read_on(world, edge, surface, "one", small=8192)
    reading.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await reading.answer.say(*["x" * 20_000] * 20)
    async with asyncio.timeout(10):
        while not await metric(edge, "streamway_edge_pauses_total"):
            await asyncio.sleep(0.02)
    reading.writer.write_eof()
    await assert_left(world, edge, surface, reading.answer)
    reading.writer.transport.abort()


@pytest.mark.parametrize("surface", STREAMS)
async def test_every_stream_of_events_says_what_clients_and_proxies_need(world: JournaledWorld, surface: str) -> None:
    edge = await world.edge()
    base = f"http://{edge.address}"
    headers: dict[str, str] = {"x-request-id": "mine"}
    if surface == "generations":
        async with aiohttp.ClientSession() as session:
            begun = asyncio.ensure_future(session.post(f"{base}/v1/generations", json=chat_body("x")))
            answer = await world.answer()
            where = base + (await (await begun).json())["events_url"]
        request = await RawRequest.get(where, {**SSE, **headers})
    else:
        body: dict[str, Any] = {"model": "simulated", "input": "x", "stream": True}
        path = "/v1/responses"
        if surface != "responses":
            body, path = chat_body("x", stream=True), "/v1/chat/completions"
            headers |= GRACE if surface == "chat, grace" else {}
        request = await RawRequest.post(base + path, body, headers)
        answer = await world.answer()
    await answer.say("one")
    assert await request.head() == 200
    told = request.headers
    assert told["content-type"] == "text/event-stream"
    assert (told["cache-control"], told["x-accel-buffering"], told["x-request-id"]) == ("no-cache", "no", "mine")
    assert told["x-streamway-generation"] == answer.id
    drained = asyncio.ensure_future(edge.drain())
    await asyncio.sleep(0.3)
    await answer.end()
    assert [event async for event in request.events()]
    # The process stops: the connection serves no other request.
    assert await asyncio.wait_for(request.reader.read(), 10) == b"\r\n"
    await drained


@pytest.mark.parametrize("surface", ["websocket", "chat, grace", "generations", "responses"])
async def test_f3_a_client_that_reads_a_byte_a_second_holds_no_more_than_its_bound(
    world: JournaledWorld, surface: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_bytes, piece = 64 * 1024, "x" * 10_000
    most = 0
    flush = Outbox.flush

    def watched(outbox: Outbox) -> None:
        nonlocal most
        flush(outbox)
        most = max(most, outbox.waiting)

    monkeypatch.setattr(Outbox, "flush", watched)
    edge = await world.edge(slow_bytes=slow_bytes, socket_send_bytes=16384, slow_client_s=600)
    slow = await read_on(world, edge, surface, "one", small=8192)
    slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
    raw = slow.writer.get_extra_info("socket")

    async def sip() -> None:
        while True:
            with suppress(BlockingIOError):
                os.read(raw.fileno(), 1)
            await asyncio.sleep(1.0)

    sipping = asyncio.ensure_future(sip())
    async with frames(f"ws://{edge.address}/v1/stream") as quick:
        await quick.open("q", "hi")
        other = await world.answer(2)
        for number in range(400):
            await slow.answer.say(piece)
            if number % 20 == 0:
                await other.say(str(number))
                # What the slow one is sent does not stand before this.
                assert (await quick.until("token", within_s=20))[-1]["text"] == str(number)
        await other.end()
        await quick.until("finished", within_s=20)
    assert await metric(edge, "streamway_edge_pauses_total") >= 1
    assert await metric(edge, "streamway_edge_slow_consumers_total") == 0
    # One batch may go over it, and brings no more than one event here.
    assert most <= slow_bytes + 4 * len(piece), f"{most} bytes of 4,000,000 waited"
    assert not world.router.cancelled
    sipping.cancel()
    await asyncio.wait({sipping})
    # What waits for it would else hold up the end of the edge.
    slow.writer.transport.abort()
