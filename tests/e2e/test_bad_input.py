"""What clients and operators get wrong, against a whole mesh and on every surface: told alike, and nothing is harmed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import grpc.aio
import pytest
from google.rpc import error_details_pb2

from streamway.auth import hash_key
from streamway.errors import StreamwayError, from_rpc_error
from streamway.runtime.ids import new_generation_id
from streamway.v1 import common_pb2, router_pb2, router_pb2_grpc
from tests.support.clients import Frames, assert_positions_tile, chat_body, frames, text_of
from tests.support.mesh import ENDS_SOON, MeshProcesses

pytestmark = pytest.mark.timeout(120)
_SSE = {"Accept": "text/event-stream"}


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshProcesses]:
    """Three tenants: `acme` is silver, `tiny` may have 60 tokens a minute, `other` is somebody else."""
    folder = tmp_path_factory.mktemp("bad-input")
    rows = {
        "acme": {"tier": "silver", "keys": [hash_key("acme")]},
        "tiny": {"tier": "silver", "keys": [hash_key("tiny")], "tokens_per_minute": 60},
        "other": {"tier": "gold", "keys": [hash_key("other")]},
    }
    tenants = folder / "tenants.yaml"
    tenants.write_text(json.dumps({"tenants": rows}), encoding="utf-8")
    processes = MeshProcesses(
        folder / "mesh",
        environment={
            **ENDS_SOON,
            "STREAMWAY_TENANTS_FILE": str(tenants),
            "STREAMWAY_ADAPTER_SIMULATION": json.dumps({"tokens_per_s": 60}),
        },
    )
    yield processes
    processes.close()


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@asynccontextmanager
async def _socket(mesh: MeshProcesses, key: str = "acme") -> AsyncIterator[Frames]:
    async with frames(mesh.websocket_url, additional_headers=_bearer(key)) as client:
        yield client


async def _http(
    mesh: MeshProcesses,
    method: str,
    path: str,
    key: str = "acme",
    headers: dict[str, str] | None = None,
    **options: Any,
) -> tuple[int, Any, dict[str, Any]]:
    """Status, headers and the JSON of a response."""
    url, sent = mesh.edge_url + path, {**_bearer(key), **(headers or {})}
    async with aiohttp.ClientSession() as session, session.request(method, url, headers=sent, **options) as response:
        return response.status, response.headers, await response.json()


class _Router:
    """The router as a client of gRPC meets it."""

    def __init__(self, channel: grpc.aio.Channel, key: str) -> None:
        self._stub: Any = router_pb2_grpc.RouterServiceStub(channel)
        self._metadata = grpc.aio.Metadata(("authorization", f"Bearer {key}"))

    async def generate(self, prompt: str, **fields: Any) -> list[common_pb2.Event]:
        request = common_pb2.GenerationRequest(
            model="simulated", messages=[common_pb2.Message(role="user", content=prompt)], **fields
        )
        call = self._stub.Generate(router_pb2.GenerateRequest(request=request), metadata=self._metadata)
        return [event async for response in call for event in response.events]

    async def resume(self, generation: str, after: str) -> list[common_pb2.Event]:
        request = router_pb2.ResumeRequest(generation=generation, cursor=after)
        call = self._stub.Resume(request, metadata=self._metadata)
        return [event async for response in call for event in response.events]

    async def cancel(self, generation: str) -> router_pb2.CancelResponse:
        reply: router_pb2.CancelResponse = await self._stub.Cancel(
            router_pb2.CancelRequest(generation=generation), metadata=self._metadata
        )
        return reply


@asynccontextmanager
async def _router(mesh: MeshProcesses, key: str = "acme") -> AsyncIterator[_Router]:
    async with grpc.aio.insecure_channel(mesh.address("router-0")) as channel:
        yield _Router(channel, key)


async def _refusal(call: Any) -> tuple[grpc.StatusCode, StreamwayError, set[str]]:
    """Code, error and the kinds of details of a call over gRPC that is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    trailers = dict(caught.value.trailing_metadata() or ())
    details = error_details_pb2.RetryInfo.DESCRIPTOR.full_name
    told = {details} if details.encode() in bytes(trailers.get("grpc-status-details-bin", b"")) else set()
    return caught.value.code(), from_rpc_error(caught.value), told


async def _ended(mesh: MeshProcesses, prompt: str, tokens: int = 4, **fields: Any) -> tuple[str, str, str]:
    """An answer that has ended: its id, the cursor of its end, its text."""
    async with _socket(mesh) as client:
        await client.open("a", prompt, params={"max_tokens": tokens}, **fields)
        seen = await client.until("finished")
    accepted, epoch = seen[0], next(frame["epoch"] for frame in seen if frame["type"] == "started")
    return accepted["generation"], f"{epoch}-{seen[-1]['position']}", text_of(seen)


async def test_a_priority_above_the_tenants_highest_is_lowered_and_told_on_every_surface(mesh: MeshProcesses) -> None:
    body = chat_body("urgent", max_tokens=2)
    for stream in (False, True):
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                mesh.edge_url + "/v1/chat/completions",
                json=body | {"stream": stream},
                headers={**_bearer("acme"), "x-priority": "100"},
            ) as response,
        ):
            assert (response.status, response.headers["x-streamway-priority"]) == (200, "63")
            await response.read()
    async with _socket(mesh) as client:
        await client.open("a", "urgent", priority=100, params={"max_tokens": 2})
        assert (await client.until("accepted"))[-1]["lowered_priority"] == 63
        await client.until("finished", "a")
        await client.open("b", "urgent", priority=63, params={"max_tokens": 2})
        assert "lowered_priority" not in (await client.until("accepted", "b"))[-1]
        await client.until("finished", "b")
        await client.open("c", "urgent", priority=128)
        assert (await client.until("error", "c"))[-1]["reason"] == "invalid_argument"
    async with _router(mesh) as router:
        events = await router.generate("urgent", priority=100, limits=common_pb2.Limits(max_tokens=2))
        assert events[0].accepted.lowered_priority == 63


async def test_a_request_larger_than_the_bucket_is_final_on_every_surface(mesh: MeshProcesses) -> None:
    """No waiting helps, so nothing says when to come back."""
    for path, body in (
        ("/v1/chat/completions", chat_body("too much", max_tokens=500)),
        ("/v1/chat/completions", chat_body("too much", max_tokens=500, stream=True)),
        ("/v1/responses", {"model": "simulated", "input": "too much", "max_output_tokens": 500}),
        ("/v1/generations", chat_body("too much", params={"max_tokens": 500})),
    ):
        status, headers, told = await _http(mesh, "POST", path, "tiny", json=body)
        assert (status, told["error"]["code"]) == (413, "request_too_large_for_quota"), path
        assert told["retryable"] is False
        assert "Retry-After" not in headers
    async with _socket(mesh, "tiny") as client:
        await client.open("a", "too much", params={"max_tokens": 500})
        frame = (await client.until("error", "a"))[-1]
        assert (frame["reason"], frame["retryable"]) == ("request_too_large_for_quota", False)
        assert "retry_after_ms" not in frame
        assert "retry_after_s" not in frame
        # Refused for nothing: what fits is taken on the same connection, and there is all of the bucket for it.
        await client.open("b", "hi", params={"max_tokens": 4})
        assert (await client.until("finished", "b"))[-1]["usage"]["completion_tokens"] == 4
    async with _router(mesh, "tiny") as router:
        code, problem, details = await _refusal(router.generate("x", limits=common_pb2.Limits(max_tokens=500)))
    assert (code, problem.name, details) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "request_too_large_for_quota",
        set(),
    )
    assert problem.retry_after_s is None


async def test_a_cursor_from_the_future_is_told_as_behind_on_every_surface(mesh: MeshProcesses) -> None:
    generation, end, _ = await _ended(mesh, "from the future")
    epoch, _, last = end.partition("-")
    future = f"{epoch}-{int(last) + 90}"
    where = f"/v1/generations/{generation}/events"
    async with _socket(mesh) as client:
        await client.send(type="resume", id="r", generation=generation, after=future)
        resumed = (await client.until("finished", "r"))[0]
    assert (resumed["type"], resumed["recovered"], resumed["behind"]) == ("resumed", False, True)
    status, _, told = await _http(mesh, "GET", f"{where}?after={future}")
    assert status == 200
    assert (told["events"][0]["behind"], told["events"][-1]["type"]) == (True, "finished")
    async with (
        aiohttp.ClientSession() as session,
        session.get(mesh.edge_url + where, headers={**_bearer("acme"), **_SSE, "Last-Event-ID": future}) as response,
    ):
        assert b'"behind":true' in await response.read()
    async with _router(mesh) as router:
        events = await router.resume(generation, future)
    assert (events[0].resumed.behind, events[0].resumed.recovered) == (True, False)
    assert events[-1].HasField("finished")


async def test_anothers_generation_is_told_as_an_unknown_one_on_every_surface(mesh: MeshProcesses) -> None:
    own, cursor, _ = await _ended(mesh, "mine")
    said = set()
    for generation in (own, new_generation_id()):
        for method, path in (
            ("GET", f"/v1/generations/{generation}/events?after={cursor}"),
            ("DELETE", f"/v1/generations/{generation}"),
        ):
            status, _, told = await _http(mesh, method, path, "other")
            said.add((status, told["error"]["code"], told["error"]["message"].replace(generation, "…")))
        status, _, told = await _http(mesh, "GET", f"/v1/generations/{generation}/events", "other", headers=_SSE)
        said.add((status, told["error"]["code"], told["error"]["message"].replace(generation, "…")))
        async with _socket(mesh, "other") as client:
            await client.send(type="resume", id="r", generation=generation, after=cursor)
            frame = (await client.until("error", "r"))[-1]
            said.add((404, frame["reason"], frame["message"].replace(generation, "…")))
        async with _router(mesh, "other") as router:
            for call in (router.resume(generation, cursor), router.cancel(generation)):
                code, problem, _ = await _refusal(call)
                assert code is grpc.StatusCode.NOT_FOUND
                said.add((404, problem.name, problem.message.replace(generation, "…")))
    assert len(said) == 1, said
    assert said.pop()[:2] == (404, "generation_not_found")


async def test_a_resume_while_another_reads_takes_nothing_from_it(mesh: MeshProcesses) -> None:
    """Any number may read one generation (`docs/protocol.md`): a WebSocket, an SSE stream and gRPC read this one at once."""

    async def by_sse(generation: str) -> str:
        async with (
            aiohttp.ClientSession() as session,
            session.get(
                f"{mesh.edge_url}/v1/generations/{generation}/events", headers={**_bearer("acme"), **_SSE}
            ) as response,
        ):
            lines = (await response.text()).splitlines()
        return text_of([json.loads(line[6:]) for line in lines if line.startswith("data: {")])

    async def by_grpc(generation: str) -> str:
        async with _router(mesh) as router:
            return "".join(event.token.text for event in await router.resume(generation, ""))

    async with _socket(mesh) as first, _socket(mesh) as second:
        await first.open("a", "both may read", params={"max_tokens": 40})
        seen = await first.until("token", "a")
        generation = seen[0]["generation"]
        await second.send(type="resume", id="b", generation=generation)
        (_, sse, grpc_text), one, two = await asyncio.gather(
            asyncio.gather(asyncio.sleep(0), by_sse(generation), by_grpc(generation)),
            first.until("finished", "a"),
            second.until("finished", "b"),
        )
    seen += one
    assert_positions_tile(seen, "a")
    assert len({text_of(seen), text_of(two), sse, grpc_text}) == 1
    assert seen[-1]["usage"] == two[-1]["usage"]


async def test_a_cancel_after_the_end_changes_nothing_on_any_surface(mesh: MeshProcesses) -> None:
    generation, _, text = await _ended(mesh, "over already")
    for _ in range(2):
        status, _, told = await _http(mesh, "DELETE", f"/v1/generations/{generation}")
        assert (status, told) == (200, {"generation": generation, "state": "finished"})
    async with _router(mesh) as router:
        assert (await router.cancel(generation)).state == router_pb2.GENERATION_STATE_FINISHED
    async with _socket(mesh) as client:
        await client.open("a", "over too", params={"max_tokens": 2})
        await client.until("finished", "a")
        # The id is free again: as a cancel of what was never here. The connection goes on.
        await client.send(type="cancel", id="a")
        await client.send(type="resume", id="b", generation=generation)
        seen = await client.until("finished", "b")
    assert [frame["reason"] for frame in seen if frame["type"] == "error"] == ["generation_not_found"]
    assert text_of(seen, "b") == text


async def test_an_idempotency_key_with_another_body_is_a_conflict_on_every_surface(mesh: MeshProcesses) -> None:
    first, _, _ = await _ended(mesh, "pay 1", idempotency_key="bill")
    problems = []
    for path, body in (
        ("/v1/chat/completions", chat_body("pay 2", max_tokens=4)),
        ("/v1/chat/completions", chat_body("pay 2", max_tokens=4, stream=True)),
        ("/v1/generations", chat_body("pay 2", params={"max_tokens": 4})),
    ):
        status, headers, told = await _http(mesh, "POST", path, headers={"Idempotency-Key": "bill"}, json=body)
        assert (status, told["retryable"], "Retry-After" in headers) == (409, False, False), (path, told)
        problems.append((told["error"]["code"], told["error"]["message"]))
    async with _socket(mesh) as client:
        await client.open("a", "pay 2", params={"max_tokens": 4}, idempotency_key="bill")
        frame = (await client.until("error", "a"))[-1]
        problems.append((frame["reason"], frame["message"]))
    async with _router(mesh) as router:
        code, problem, _ = await _refusal(
            router.generate("pay 2", idempotency_key="bill", limits=common_pb2.Limits(max_tokens=4))
        )
        assert code is grpc.StatusCode.ALREADY_EXISTS
        problems.append((problem.name, problem.message))
    assert len(set(problems)) == 1, problems
    assert problems[0][0] == "idempotency_conflict"
    assert first in problems[0][1]
