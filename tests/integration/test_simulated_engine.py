"""The simulated engine as a server, through OpenAI's own SDK and through bare sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from openai import APIConnectionError, AsyncOpenAI, BadRequestError, InternalServerError

from benchmarks.simulated_engine import EngineServer
from streamway.simulation.settings import SimulationSettings

MESSAGES = [{"role": "user", "content": "hello"}]
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]


@pytest.fixture
async def server() -> AsyncIterator[EngineServer]:
    made = EngineServer(SimulationSettings(decode_base_ms=1.0))
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def client(server: EngineServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as made:
        yield made


async def test_stream_and_document_say_the_same(client: AsyncOpenAI) -> None:
    fields = {"model": "simulated", "messages": MESSAGES, "max_tokens": 30, "n": 2, "seed": 4}
    whole = await client.chat.completions.create(**fields)
    texts = ["", ""]
    reasons = ["", ""]
    usage = None
    stream = await client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True})
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            reasons[choice.index] = choice.finish_reason or reasons[choice.index]
    assert texts == [choice.message.content for choice in whole.choices]
    assert reasons == ["length", "length"]
    assert usage is not None
    assert whole.usage is not None
    assert usage.completion_tokens == whole.usage.completion_tokens == 60


async def test_usage_comes_only_when_asked_for(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(model="simulated", messages=MESSAGES, max_tokens=3, stream=True)
    assert not [chunk async for chunk in stream if chunk.usage or not chunk.choices]


async def test_tools_and_log_probabilities_have_openais_shapes(client: AsyncOpenAI) -> None:
    called = await client.chat.completions.create(
        model="simulated",
        messages=MESSAGES,
        tools=TOOLS,
        tool_choice={"type": "function", "function": {"name": "weather"}},
    )
    assert called.choices[0].finish_reason == "tool_calls"
    assert called.choices[0].message.tool_calls[0].function.name == "weather"
    drawn = await client.chat.completions.create(model="simulated", messages=MESSAGES, max_tokens=3, logprobs=True)
    tokens = [entry.token for entry in drawn.choices[0].logprobs.content]
    assert "".join(tokens) == drawn.choices[0].message.content


async def test_errors_have_openais_shapes(client: AsyncOpenAI) -> None:
    with pytest.raises(BadRequestError, match="max_tokens"):
        await client.chat.completions.create(model="simulated", messages=MESSAGES, max_tokens=-1)
    with pytest.raises(InternalServerError):
        await client.chat.completions.create(
            model="simulated", messages=MESSAGES, extra_body={"streamway_faults": {"status": 503}}
        )
    with pytest.raises(APIConnectionError):
        await client.chat.completions.create(
            model="simulated", messages=MESSAGES, extra_body={"streamway_faults": {"die_at_token": 2}}
        )


async def test_a_client_that_goes_stops_the_work(server: EngineServer, client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(model="simulated", messages=MESSAGES, max_tokens=20_000, stream=True)
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    assert server.engine.running == 1
    await stream.close()
    for _ in range(1000):
        if not server.engine.running:
            break
        await asyncio.sleep(0.01)
    assert server.engine.running == 0
    assert server.engine.totals.cancelled == 1


async def test_one_connection_takes_one_request_after_the_other(server: EngineServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.address.rpartition(":")[2]))
    body = b'{"messages":[{"role":"user"}],"max_tokens":2,"stream":true}'
    for path in (b"/health", b"/v1/chat/completions", b"/nowhere", b"/metrics"):
        writer.write(b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (path, len(body), body))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 404" if path == b"/nowhere" else b"HTTP/1.1 200")
        if b"chunked" in head:
            assert (await reader.readuntil(b"0\r\n\r\n")).count(b"data: ") == 4
        else:
            length = int(head.lower().partition(b"content-length: ")[2].split()[0])
            page = await reader.readexactly(length)
    assert b"simulated:requests_total 1\n" in page
    assert b"simulated:tokens_total 2\n" in page
    writer.write(b"nonsense\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 400")
    writer.close()


async def test_a_connection_without_a_request_is_closed_after_its_time_and_connections_with_calls_are_counted() -> None:
    made = EngineServer(SimulationSettings(decode_base_ms=1.0), keep_s=0.5)
    await made.start()
    host, port = made.address.removeprefix("http://").split(":")
    readers = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
    async with asyncio.timeout(10):
        for reader, writer in readers:
            assert await reader.read() == b""
            writer.close()
    async with AsyncOpenAI(base_url=f"{made.address}/v1", api_key="none", max_retries=0) as client:
        for _ in range(3):
            await client.chat.completions.create(model="simulated", messages=MESSAGES, max_tokens=2)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: engine\r\n\r\n")
    async with asyncio.timeout(10):
        said = (await reader.read()).decode()
    writer.close()
    assert "simulated:requests_total 3" in said
    assert "simulated:connections_used_total 1" in said
    await made.close()
