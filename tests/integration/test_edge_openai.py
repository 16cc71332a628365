"""The OpenAI surface of the edge, through OpenAI's own SDK and raw HTTP, over real gRPC."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import openai
import pytest

from streamway.errors import EngineRejected, GoingAway, ModelNotFound, QueueFull
from streamway.v1 import common_pb2
from tests.support.clients import RawRequest, frames
from tests.support.edge_world import EdgeWorld, chat, edge_world, sse
from tests.support.hand_router import accepted, refused
from tests.support.inference_service import failed, finished, started, token

PATH = "/v1/chat/completions"


def sdk(world: EdgeWorld, key: str = "none") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=world.url + "/v1", api_key=key, max_retries=0, timeout=20)


async def test_the_sdk_streams_an_answer() -> None:
    async with edge_world() as world, sdk(world) as client:

        async def work() -> None:
            request = await world.router.asked()
            world.speak(request.generation, "Hel", "lo", " wörld 🌍")

        async with asyncio.TaskGroup() as group:
            group.create_task(work())
            stream = await client.chat.completions.create(**chat(), stream=True, stream_options={"include_usage": True})
            chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Hello wörld 🌍"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 3
    assert chunks[-1].usage.prompt_tokens_details is not None
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens == 2
    assert len({chunk.id for chunk in chunks}) == 1


async def test_of_a_clients_baggage_the_known_keys_go_with_each_request_on_every_surface() -> None:
    headers = {"baggage": "team=blue;private=1, who=me, run=7"}
    async with edge_world(shared={"baggage_keys": ("team", "run")}) as world, aiohttp.ClientSession() as session:
        world.router.answer = lambda request: [refused(request, ModelNotFound("simulated", ["m"]))]
        for path, body in (
            ("/v1/chat/completions", chat()),
            ("/v1/chat/completions", chat(stream=True)),
            ("/v1/generations", chat()),
            ("/v1/responses", {"model": "simulated", "input": "hello", "store": False}),
        ):
            async with session.post(world.url + path, json=body, headers=headers) as response:
                assert response.status == 404, await response.text()
        async with frames(world.websocket_url, additional_headers=headers) as client:
            await client.open("a", "hello")
            await client.until("error", "a")
        assert [request.baggage for request in world.router.opened] == ["team=blue,run=7"] * 5
    async with edge_world() as world, aiohttp.ClientSession() as session:
        world.router.answer = lambda request: [refused(request, ModelNotFound("simulated", ["m"]))]
        async with session.post(world.url + "/v1/chat/completions", json=chat(), headers=headers) as response:
            assert response.status == 404
        assert world.router.opened[0].baggage == "", "none is known unless it is configured"


async def test_the_sdk_gets_a_whole_answer_with_its_headers() -> None:
    async with edge_world() as world, sdk(world) as client:

        async def work() -> None:
            request = await world.router.asked()
            world.speak(request.generation, "Hel", "lo")

        async with asyncio.TaskGroup() as group:
            group.create_task(work())
            raw = await client.chat.completions.with_raw_response.create(
                **chat(temperature=0, seed=3, stop=["x"], max_tokens=9),
                extra_headers={"x-session-id": "me", "x-request-id": "abc-1", "x-priority": "-3"},
            )
        answer = raw.parse()
        request = world.router.opened[0]
    assert answer.choices[0].message.content == "Hello"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 9
    assert raw.headers["x-request-id"] == "abc-1"
    assert raw.headers["x-streamway-worker"] == "hand"
    assert raw.headers["x-streamway-generation"] == request.generation
    assert raw.headers["x-streamway-session"] == request.session
    assert raw.headers["traceparent"] == request.traceparent
    assert raw.headers["x-streamway-cache"] == "miss"
    assert request.priority == -3
    assert request.sampling.seed == 3
    assert request.sampling.HasField("temperature")
    assert list(request.limits.stop) == ["x"]
    assert request.limits.max_tokens == 9
    assert request.openai_body


async def test_usage_is_left_out_unless_asked_for() -> None:
    async with edge_world() as world:
        text = await streamed(world, chat(stream=True), "a", "b")
    events = sse(text)
    assert events[-1] == "[DONE]"
    assert all("usage" not in event for event in events[:-1])
    assert "id: 1048576-3\n" in text


async def streamed(world: EdgeWorld, body: dict[str, Any], *texts: str) -> str:
    """The text of a streamed response in which the worker says `texts`."""
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:

        async def work() -> None:
            request = await world.router.asked(len(world.router.opened) + 1)
            world.speak(request.generation, *texts)

        group.create_task(work())
        async with session.post(world.url + PATH, json=body) as response:
            assert response.status == 200, await response.text()
            assert response.headers["X-Accel-Buffering"] == "no"
            assert response.headers["Content-Type"] == "text/event-stream"
            return await response.text()


async def test_several_choices_keep_their_index() -> None:
    async with edge_world() as world, sdk(world) as client:

        async def work() -> None:
            request = await world.router.asked()
            events = [started()]
            for position, (choice, text) in enumerate([(0, "a"), (1, "x"), (0, "b"), (1, "y")], 3):
                event = token(position, text)
                event.token.choice = choice
                if position > 4:
                    event.token.choice_finished.finish_reason = "length"
                events.append(event)
            world.worker.push(request.generation, *events, finished(7, prompt_tokens=1, completion_tokens=4))

        async with asyncio.TaskGroup() as group:
            group.create_task(work())
            answer = await client.chat.completions.create(**chat(), n=2)
    assert [choice.message.content for choice in answer.choices] == ["ab", "xy"]
    assert [choice.finish_reason for choice in answer.choices] == ["length", "length"]


@pytest.mark.parametrize("stream", [True, False])
async def test_tool_calls_reach_the_client(stream: bool) -> None:
    pieces = [
        b'{"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}]}}',
        b'{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\\"a\\":"}}]}}',
        b'{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}}',
    ]
    async with edge_world() as world, sdk(world) as client:

        async def work() -> None:
            request = await world.router.asked()
            events = [started()]
            for position, piece in enumerate(pieces, 3):
                events.append(
                    common_pb2.Event(position=position, epoch=1 << 20, token=common_pb2.Token(raw_delta=piece, units=1))
                )
            events[-1].token.choice_finished.finish_reason = "tool_calls"
            world.worker.push(request.generation, *events, finished(6))

        tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
        async with asyncio.TaskGroup() as group:
            group.create_task(work())
            if stream:
                async with client.chat.completions.stream(**chat(), tools=tools) as events:
                    answer = await events.get_final_completion()
            else:
                answer = await client.chat.completions.create(**chat(), tools=tools)
    call = answer.choices[0].message.tool_calls[0]
    assert (call.id, call.function.name, call.function.arguments) == ("c1", "f", '{"a":1}')
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.choices[0].message.content is None


async def test_an_engines_refusal_before_the_first_byte_is_an_http_status() -> None:
    async with edge_world() as world, sdk(world) as client:

        async def work() -> None:
            request = await world.router.asked()
            world.worker.push(
                request.generation, started(), failed(3, EngineRejected("no such grammar", 400, "grammar"))
            )

        async with asyncio.TaskGroup() as group:
            group.create_task(work())
            with pytest.raises(openai.BadRequestError, match="no such grammar") as caught:
                await client.chat.completions.create(**chat(), stream=True)
    assert caught.value.param == "grammar"
    assert caught.value.code == "engine_rejected"


async def test_an_error_after_the_200_arrives_in_band_and_ends_the_stream() -> None:
    async with edge_world() as world:

        async def work() -> None:
            request = await world.router.asked()
            world.worker.push(request.generation, started(), token(3, "a"))
            await begun.wait()
            world.worker.push(request.generation, failed(4, EngineRejected("broke", 400)))

        begun = asyncio.Event()
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
            group.create_task(work())
            async with session.post(world.url + PATH, json=chat(stream=True)) as response:
                assert response.status == 200
                begun.set()
                events = sse(await response.text())
    assert events[0]["choices"][0]["delta"]["content"] == "a"
    assert events[-1]["error"]["message"] == "broke"
    assert len(events) == 2


async def test_refusals_have_openais_shape_and_a_time_to_wait() -> None:
    async with edge_world() as world, sdk(world) as client:
        world.router.answer = lambda request: [refused(request, QueueFull("simulated", 3.0))]
        with pytest.raises(openai.RateLimitError) as caught:
            await client.chat.completions.create(**chat())
    assert caught.value.response.headers["Retry-After"] == "3"
    assert caught.value.code == "queue_full"


async def test_an_answer_from_the_cache_comes_from_the_router_alone() -> None:
    async with edge_world() as world, sdk(world) as client:

        def answer(request: common_pb2.GenerationRequest) -> list[common_pb2.Event]:
            events = [
                accepted(request, "", "", cache="exact"),
                token(2, "kept", 0),
                finished(3, 0, completion_tokens=1),
            ]
            for event in events:
                event.generation = request.generation
            return events

        world.router.answer = answer
        raw = await client.chat.completions.with_raw_response.create(**chat(temperature=0))
    assert raw.headers["x-streamway-cache"] == "exact"
    assert "x-streamway-worker" not in raw.headers
    assert raw.parse().choices[0].message.content == "kept"


@pytest.mark.parametrize("stream", [True, False])
async def test_a3_a_client_that_leaves_cancels_its_generation(stream: bool) -> None:
    async with edge_world() as world:
        client = await RawRequest.post(world.url + PATH, chat(stream=stream))
        request = await world.router.asked()
        world.worker.push(request.generation, started(), token(3, "a"))
        if stream:
            assert await client.head() == 200
        client.cut()
        await world.router.until(lambda: world.router.cancelled == [request.generation])
        assert await world.metric("streamway_edge_abnormal_closes_total") == 1
        assert await world.metric("streamway_edge_live_generations", surface="openai_stream") == 0


async def test_a2_leaving_before_the_router_has_answered_cancels_too() -> None:
    async with edge_world() as world:
        world.router.answer = lambda _: None
        client = await RawRequest.post(world.url + PATH, chat(stream=True))
        request = await world.router.asked()
        client.cut()
        await world.router.until(lambda: world.router.cancelled == [request.generation])


async def test_c4_a_half_closed_client_is_a_gone_client() -> None:
    async with edge_world() as world:
        client = await RawRequest.post(world.url + PATH, chat(stream=True))
        request = await world.router.asked()
        world.worker.push(request.generation, started(), token(3, "a"))
        assert await client.head() == 200
        client.writer.write_eof()
        await world.router.until(lambda: world.router.cancelled == [request.generation])
        client.cut()


async def test_c1_heartbeats_come_while_the_engine_is_silent() -> None:
    async with edge_world(heartbeat_s=0.3, hold_status_s=0.1) as world:
        client = await RawRequest.post(world.url + PATH, chat(stream=True))
        request = await world.router.asked()
        assert await client.head() == 200
        pings = 0
        async for chunk in client.chunks():
            if b'"late"' in chunk:
                break
            assert chunk == b": ping\n\n"
            pings += 1
            if pings == 3:
                world.worker.push(request.generation, started(), failed(3, EngineRejected("late", 400)))
        assert pings == 3
        client.cut()


async def test_a_draining_router_hands_the_request_to_nobody_else_twice() -> None:
    """GOING_AWAY from one router: the same id is opened at the next one, and the client never knows."""
    async with edge_world() as other, edge_world() as first:
        edge_settings = [first.router_server.address, other.router_server.address]  # type: ignore[union-attr]
        async with edge_world(routers=edge_settings) as world, sdk(world) as client:
            await first.router.until(lambda: first.router.streams == 2)
            await other.router.until(lambda: other.router.streams == 2)

            def go_away(request: common_pb2.GenerationRequest) -> list[common_pb2.Event]:
                return [refused(request, GoingAway("router"))]

            first.router.answer = go_away

            async def work() -> None:
                for number in range(1, 9):
                    request = await other.router.asked(number)
                    other.speak(request.generation, "ok")

            async with asyncio.TaskGroup() as group:
                group.create_task(work())
                for number in range(8):
                    answer = await client.chat.completions.create(**chat(f"session {number}"))
                    assert answer.choices[0].message.content == "ok"
            ids = [request.generation for request in first.router.opened]
            assert len(ids) <= 1
            assert set(ids) <= {request.generation for request in other.router.opened}


async def test_c1_a_mesh_that_takes_long_to_answer_gets_an_early_200_and_heartbeats() -> None:
    async with edge_world(heartbeat_s=0.6, router_wait_s=1.5) as world:
        world.router.answer = lambda _: None
        client = await RawRequest.post(world.url + PATH, chat(stream=True))
        request = await world.router.asked()
        assert await client.head() == 200
        assert "x-streamway-worker" not in client.headers
        assert client.headers["x-streamway-generation"] == request.generation
        chunks = client.chunks()
        assert await anext(chunks) == b": ping\n\n"
        world.router.say(refused(request, QueueFull("simulated", 3.0)))
        async for chunk in chunks:
            if b"queue_full" in chunk:
                break
        client.cut()
