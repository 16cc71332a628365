"""Plain HTTP at the edge: errors in OpenAI's shape, models, health, the console, draining."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from services.edge.app import STATIC, Edge
from services.edge.settings import EdgeSettings
from streamway.auth import hash_key
from streamway.config import SharedSettings
from streamway.runtime.process import StartError
from tests.support.clients import RawRequest
from tests.support.edge_world import EdgeWorld, chat, edge_world, sse
from tests.support.inference_service import finished, started, token

PATH = "/v1/chat/completions"


async def call(world: EdgeWorld, method: str, path: str, **options: Any) -> tuple[int, Any, Any]:
    """Status, headers and JSON body of one request."""
    async with aiohttp.ClientSession() as session, session.request(method, world.url + path, **options) as response:
        return response.status, response.headers, await response.json()


def assert_openai_error(body: dict[str, Any], headers: Any) -> None:
    assert set(body) == {"error", "request_id", "retryable"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["request_id"] == headers["x-request-id"]
    assert body["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "options", "status", "code"),
    [
        ("GET", "/v1/nothing", {}, 404, "not_found"),
        ("GET", "/nothing.js", {}, 404, "not_found"),
        ("GET", PATH, {}, 405, "method_not_allowed"),
        ("POST", "/v1/models", {"json": {}}, 405, "method_not_allowed"),
        ("POST", PATH, {"data": b"{}", "headers": {"Content-Type": "text/plain"}}, 415, "unsupported_media_type"),
        ("POST", PATH, {"data": b"{", "headers": {"Content-Type": "application/json"}}, 400, "malformed"),
        ("POST", PATH, {"json": chat(n=0)}, 400, "invalid_argument"),
        ("POST", PATH, {"json": chat(), "headers": {"x-priority": "200"}}, 400, "invalid_argument"),
        ("POST", PATH, {"json": chat(), "headers": {"x-streamway-cache": "yes"}}, 400, "invalid_argument"),
        ("POST", PATH, {"json": chat(), "headers": {"x-session-id": "x" * 300}}, 400, "invalid_argument"),
        ("POST", PATH, {"json": chat(), "headers": {"Origin": "https://evil.example"}}, 403, "forbidden"),
        ("POST", PATH, {"json": chat(), "headers": {"Host": "evil.example"}}, 403, "forbidden"),
        ("GET", "/v1/stream", {}, 400, "invalid_argument"),
        ("GET", "/v1/models/none/such", {}, 404, "model_not_found"),
    ],
)
async def test_refusals_are_json_in_openais_shape(
    method: str, path: str, options: dict[str, Any], status: int, code: str
) -> None:
    async with edge_world() as world:
        got, headers, body = await call(world, method, path, **options)
    assert (got, body["error"]["code"]) == (status, code)
    assert_openai_error(body, headers)


async def test_k1_a_large_prompt_passes_and_a_larger_one_is_refused_by_name() -> None:
    limit = 2 * 1024 * 1024
    async with edge_world({"max_message_bytes": limit}) as world, asyncio.TaskGroup() as group:

        async def work() -> None:
            request = await world.router.asked()
            world.speak(request.generation, "ok")

        group.create_task(work())
        status, _, _ = await call(world, "POST", PATH, **large(int(limit * 0.9)))
        assert status == 200
        for size in (limit - 5_000, limit, limit * 2):
            status, headers, body = await call(world, "POST", PATH, **large(size))
            assert (status, body["error"]["code"]) == (413, "too_large")
            assert "STREAMWAY_MAX_MESSAGE_BYTES" in body["error"]["message"]
            assert_openai_error(body, headers)


def large(size: int) -> dict[str, Any]:
    """A request with a prompt of `size` bytes, as aiohttp's client wants large bodies."""
    payload = io.BytesIO(json.dumps(chat("x" * size)).encode())
    return {"data": payload, "headers": {"Content-Type": "application/json"}}


async def test_models_are_listed_and_found() -> None:
    async with edge_world() as world:
        _, headers, body = await call(world, "GET", "/v1/models", headers={"x-request-id": "my-id"})
        assert [model["id"] for model in body["data"]] == ["simulated"]
        assert headers["x-request-id"] == "my-id"
        _, headers, body = await call(world, "GET", "/v1/models/simulated", headers={"x-request-id": "no spaces"})
        assert (body["id"], body["object"], body["slots"]) == ("simulated", "model", 4)
        assert headers["x-request-id"] != "no spaces"
        assert world.router_server is not None
        await world.router_server.stop()
        await asyncio.sleep(1.2)
        status, headers, body = await call(world, "GET", "/v1/models")
        assert (status, body["error"]["code"], headers["Retry-After"]) == (503, "router_unavailable", "1")


async def test_without_a_key_nothing_but_health_and_console_answers(tmp_path: Path) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_text(f"keys:\n  - hash: {hash_key('sk-1')}\n    tenant: acme\n", encoding="utf-8")
    async with edge_world({"api_keys_file": keys, "mesh_token": "t"}) as world:
        for method, path in (("GET", "/v1/models"), ("POST", PATH)):
            status, headers, body = await call(world, method, path, json=chat())
            assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
            assert_openai_error(body, headers)
        status, _, _ = await call(world, "GET", "/v1/models", headers={"Authorization": "Bearer sk-1"})
        assert status == 200
        async with aiohttp.ClientSession() as session:
            for path in ("/healthz", "/readyz"):
                async with session.get(world.url + path) as response:
                    assert response.status == 200


async def test_readiness_follows_the_routers() -> None:
    async with edge_world(routers=["127.0.0.1:1"]) as world, aiohttp.ClientSession() as session:
        for url in (world.url, f"http://{world.edge.operations_address}"):
            async with session.get(url + "/readyz") as response:
                assert (response.status, await response.text()) == (503, "waiting for a router\n")
            async with session.get(url + "/healthz") as response:
                assert response.status == 200


async def test_bytes_that_are_not_http_get_a_json_error_and_no_traceback() -> None:
    async with edge_world() as world:
        host, port = world.edge.address.split(":")
        for garbage in (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
            b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(garbage)
            answer = await asyncio.wait_for(reader.read(), 20)
            head, _, body = answer.partition(b"\r\n\r\n")
            assert b" 400 " in head.split(b"\r\n")[0]
            assert json.loads(body)["error"]["code"] == "malformed"
            writer.close()
            await writer.wait_closed()


async def test_a_connection_is_kept_after_a_stream_and_http_1_0_gets_no_chunks() -> None:
    async with edge_world() as world:
        client = await RawRequest.post(world.url + PATH, chat(stream=True))
        world.speak((await world.router.asked()).generation, "one")
        assert await client.head() == 200
        assert [event async for event in client.events()][-1] == "[DONE]"
        await client.reader.readline()
        payload = json.dumps(chat()).encode()
        head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        client.writer.write(f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload)
        world.speak((await world.router.asked(2)).generation, "two")
        assert await client.head() == 200
        assert json.loads(await client.body())["choices"][0]["message"]["content"] == "two"

        payload = json.dumps(chat(stream=True)).encode()
        client.writer.write(f"{head.replace('1.1', '1.0')}Content-Length: {len(payload)}\r\n\r\n".encode() + payload)
        world.speak((await world.router.asked(3)).generation, "three")
        text = (await asyncio.wait_for(client.reader.read(), 20)).decode()
        assert "chunked" not in text
        assert sse(text.partition("\r\n\r\n")[2])[-1] == "[DONE]"
        client.cut()


async def test_the_console_may_load_nothing_from_elsewhere() -> None:
    index = STATIC / "index.html"
    if not index.exists():
        pytest.skip("the console is not there yet")
    async with edge_world() as world, aiohttp.ClientSession() as session:
        async with session.get(world.url + "/") as response:
            assert response.status == 200
            assert response.content_type == "text/html"
            policy = response.headers["Content-Security-Policy"]
            host = world.url.removeprefix("http://")
            assert policy.startswith(
                "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src"
            )
            assert f"connect-src 'self' ws://{host} wss://{host};" in policy
            assert "unsafe" not in policy
            assert "require-trusted-types-for 'script'" in policy
            assert await response.text() == index.read_text(encoding="utf-8")
            tag = response.headers["ETag"]
        async with session.get(world.url + "/", headers={"If-None-Match": tag}) as response:
            assert response.status == 304
        for outside in ("/../settings.py", "/%2e%2e/settings.py", "/.hidden"):
            async with session.get(world.url + outside) as response:
                assert response.status == 404


async def test_l1_requests_on_their_way_are_served_and_later_ones_refused() -> None:
    async with edge_world(drain_serve_s=0.5) as world:
        idle = await RawRequest.post(world.url + PATH, chat())
        world.speak((await world.router.asked()).generation, "x")
        assert await idle.head() == 200
        await idle.body()
        running = await RawRequest.post(world.url + PATH, chat(stream=True))
        request = await world.router.asked(2)
        world.worker.push(request.generation, started(), token(3, "a"))
        assert await running.head() == 200
        early = await asyncio.open_connection(*world.edge.address.split(":"))
        await asyncio.sleep(0.05)
        async with asyncio.TaskGroup() as group:
            draining = group.create_task(world.edge.drain())
            await asyncio.sleep(0.05)
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(*world.edge.address.split(":"))
            payload = json.dumps(chat()).encode()
            early[1].write(
                f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(payload)}\r\n\r\n".encode()
                + payload
            )
            world.speak((await world.router.asked(3)).generation, "y")
            answer = await asyncio.wait_for(early[0].read(), 20)
            assert b" 200 " in answer
            assert b"Connection: close" in answer
            early[1].close()
            assert await asyncio.wait_for(idle.reader.read(), 20) == b""
            assert not draining.done()
            world.worker.push(request.generation, token(4, "b"), finished(5))
            assert [event async for event in running.events()][-1] == "[DONE]"
        idle.cut()
        running.cut()


async def test_k4_metrics_count_what_happened() -> None:
    async with edge_world() as world:
        client = await RawRequest.post(world.url + PATH, chat(stream=True))
        world.speak((await world.router.asked()).generation, "a", "b")
        await client.head()
        assert [event async for event in client.events()]
        surface = {"surface": "openai_stream"}
        assert await world.metric("streamway_edge_tokens_total", **surface) == 2
        assert await world.metric("streamway_edge_generations_total", outcome="finished", **surface) == 1
        assert await world.metric("streamway_edge_ttft_seconds_count", **surface) == 1
        assert await world.metric("streamway_edge_sent_bytes_total", **surface) > 100
        assert await world.metric("process_resident_memory_bytes") > 0
        client.cut()


@pytest.mark.parametrize(
    ("settings", "shared", "says"),
    [
        ({"host": "0.0.0.0"}, {}, "STREAMWAY_MESH_TOKEN"),
        ({"host": "no.such.host.invalid"}, {"mesh_token": "t", "api_keys_file": "/nowhere"}, "/nowhere"),
    ],
)
def test_a_start_that_would_be_unsafe_is_refused_with_one_line(
    settings: dict[str, Any], shared: dict[str, Any], says: str
) -> None:
    with pytest.raises(StartError, match=says) as caught:
        Edge(EdgeSettings(port=0, **settings), SharedSettings(**shared))
    assert "\n" not in str(caught.value)


async def test_a_taken_port_stops_the_start_and_leaves_nothing_behind() -> None:
    async with edge_world(reuse_port=False) as world:
        port = int(world.edge.address.rsplit(":", 1)[1])
        second = Edge(
            EdgeSettings(port=port, operations_port=0, reuse_port=False, routers=["127.0.0.1:1"]), SharedSettings()
        )
        with pytest.raises(StartError, match="STREAMWAY_EDGE_PORT"):
            await second.start()


async def test_two_edges_share_a_port() -> None:
    async with edge_world() as world:
        port = int(world.edge.address.rsplit(":", 1)[1])
        async with edge_world(port=port) as other:
            assert other.edge.address == world.edge.address
