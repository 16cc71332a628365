"""What a tenant has left, and what it was refused for, in OpenAI's headers."""

from __future__ import annotations

from typing import Any

import aiohttp

from streamway.errors import QuotaExceeded
from streamway.v1 import common_pb2
from tests.support.clients import frames
from tests.support.edge_world import chat, edge_world
from tests.support.hand_router import accepted, refused

ALLOWANCE = common_pb2.Allowance(
    requests=common_pb2.Budget(limit=60, remaining=59, reset_ms=1000),
    tokens=common_pb2.Budget(limit=1000, remaining=640, reset_ms=21_600),
)
HEADERS = {
    "x-ratelimit-limit-requests": "60",
    "x-ratelimit-remaining-requests": "59",
    "x-ratelimit-reset-requests": "1s",
    "x-ratelimit-limit-tokens": "1000",
    "x-ratelimit-remaining-tokens": "640",
    "x-ratelimit-reset-tokens": "22s",
}


def rate_limits(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items() if name.lower().startswith("x-ratelimit")}


async def test_every_answer_says_what_is_left() -> None:
    async with edge_world() as world, aiohttp.ClientSession() as session:

        def answer(request: common_pb2.GenerationRequest) -> list[common_pb2.Event]:
            world.speak(request.generation, "Hi")
            return [accepted(request, world.router.worker, world.router.source, allowance=ALLOWANCE)]

        world.router.answer = answer
        for path, body in (
            ("/v1/chat/completions", chat()),
            ("/v1/chat/completions", chat(stream=True)),
            ("/v1/responses", {"model": "simulated", "input": "hello", "store": False}),
            ("/v1/generations", {"model": "simulated", "messages": [{"role": "user", "content": "hello"}]}),
        ):
            async with session.post(world.url + path, json=body) as response:
                assert response.status in (200, 202), await response.text()
                assert rate_limits(response.headers) == HEADERS, path
                await response.read()
        async with frames(world.websocket_url) as client:
            await client.open("q1", "hello")
            told = (await client.until("accepted"))[-1]["allowance"]
            assert told["tokens"] == {"limit": 1000, "remaining": 640, "reset_ms": 21_600}
            assert told["requests"]["remaining"] == 59


async def test_a_refusal_says_what_is_left_and_when_to_come_back() -> None:
    async with edge_world() as world, aiohttp.ClientSession() as session:
        told = {"limit_tokens": "1000", "remaining_tokens": "0", "reset_ms_tokens": "60000"}
        exceeded = QuotaExceeded("acme", "tokens_per_minute", 1000, 12.3, "", told)
        world.router.answer = lambda request: [refused(request, exceeded)]
        async with session.post(world.url + "/v1/chat/completions", json=chat()) as response:
            body = await response.json()
            assert response.status == 429
            assert (body["error"]["code"], body["error"]["type"]) == ("quota_exceeded", "rate_limit_error")
            assert response.headers["Retry-After"] == "13"
            assert rate_limits(response.headers) == {
                "x-ratelimit-limit-tokens": "1000",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "1m0s",
            }


async def test_without_limits_nothing_is_said() -> None:
    async with edge_world() as world, aiohttp.ClientSession() as session:

        def answer(request: common_pb2.GenerationRequest) -> list[common_pb2.Event]:
            world.speak(request.generation, "Hi")
            return [accepted(request, world.router.worker, world.router.source)]

        world.router.answer = answer
        async with session.post(world.url + "/v1/chat/completions", json=chat()) as response:
            assert response.status == 200
            assert rate_limits(response.headers) == {}
