"""Streams that real engines sent, recorded by scripts/record_streams.py, go through the real backend however they are cut."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from services.inference_adapter.backends.factory import make_backend
from services.inference_adapter.backends.options import BackendOptions
from services.inference_adapter.interfaces import Backend
from streamway.errors import ContextLengthExceeded, EngineRejected
from streamway.v1 import common_pb2
from tests.support.engines import RecordingSink

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
ENGINES = sorted(folder.name for folder in GOLDEN.iterdir())
PAGES = {"models": "/v1/models", "version": "/version", "metrics": "/metrics"}
SEEDS = range(3)


def recorded(engine: str, name: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((GOLDEN / engine / f"{name}.json").read_text(encoding="utf-8"))
    return said


def names(*, errors: bool) -> list[Any]:
    return [
        pytest.param(engine, path.stem, id=f"{engine}-{path.stem}")
        for engine in ENGINES
        for path in sorted((GOLDEN / engine).glob("*.json"))
        if path.stem not in PAGES and path.stem.startswith("error") is errors
    ]


@dataclass
class Replaying:
    """A server that answers a chat with one recorded exchange, cut and dressed at random by `draw`; pages as they were."""

    engine: str
    exchange: dict[str, Any] = field(default_factory=dict)
    draw: random.Random = field(default_factory=random.Random)
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)

    async def __aenter__(self) -> Replaying:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next(
                    (int(line[15:]) for line in head.splitlines() if line.lower().startswith("content-length:")), 0
                )
                body = await reader.readexactly(length)
                path = head.split()[1]
                if body:
                    self.asked.append(json.loads(body))
                    await self._chat(writer)
                else:
                    page = next((name for name, where in PAGES.items() if where == path), None)
                    await self._page(writer, recorded(self.engine, page) if page else {"status": 404, "body": "{}"})
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _page(self, writer: asyncio.StreamWriter, said: dict[str, Any]) -> None:
        data = said["body"].encode()
        kind = said.get("content_type", "application/json")
        head = f"HTTP/1.1 {said['status']} Said\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        await writer.drain()

    async def _chat(self, writer: asyncio.StreamWriter) -> None:
        if self.exchange["status"] != 200:
            await self._page(writer, self.exchange)
            return
        kind = self.exchange["content_type"]
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in self._cut(self._dressed()))
        for piece in self._cut(head + chunks + b"0\r\n\r\n"):
            writer.write(piece)
            await writer.drain()
            if self.draw.random() < 0.1:
                await asyncio.sleep(0)

    def _dressed(self) -> bytes:
        """The recorded events with other line ends, comments between, and fields that mean nothing."""
        end = self.draw.choice([b"\n", b"\r\n", b"\r"])
        made = []
        for event in self.exchange["body"].split("\n\n"):
            if self.draw.random() < 0.2:
                made.append(b": keep-alive" + end + end)
            if event:
                named = b"event: message" + end if self.draw.random() < 0.2 else b""
                made.append(named + end.join(event.encode().split(b"\n")) + end + end)
        return b"".join(made)

    def _cut(self, data: bytes) -> list[bytes]:
        """In pieces of 1 byte to 64 KiB."""
        most = self.draw.choice([5, 300, 65536])
        pieces = []
        at = 0
        while at < len(data):
            size = self.draw.randint(1, most)
            pieces.append(data[at : at + size])
            at += size
        return pieces


async def replayed(engine: str, name: str, seed: int) -> tuple[RecordingSink, dict[str, Any]]:
    """What the sink hears of an exchange, and what the engine was asked."""
    exchange = recorded(engine, name)
    async with Replaying(engine, exchange, random.Random(seed)) as server:
        backend: Backend = make_backend(BackendOptions(kind="openai_http", url=server.url, probe=False), "w-1")
        await backend.start()
        sink = RecordingSink()
        body = {key: value for key, value in exchange["request"].items() if key not in {"stream", "stream_options"}}
        backend.call(common_pb2.GenerationRequest(model="tiny", openai_body=json.dumps(body).encode()), sink)
        await sink.wait()
        await backend.close()
    return sink, server.asked[-1]


def events_of(exchange: dict[str, Any]) -> list[dict[str, Any]]:
    """The recorded events, read in the plainest way there is."""
    lines = [line.removeprefix("data: ") for line in exchange["body"].split("\n") if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(("engine", "name"), names(errors=False))
async def test_b3_a_recorded_stream_gives_the_same_however_it_is_cut(engine: str, name: str) -> None:
    exchange = recorded(engine, name)
    events = events_of(exchange)
    choices = [choice for event in events for choice in event["choices"]]
    for seed in SEEDS:
        sink, asked = await replayed(engine, name, seed)
        assert sink.error is None
        for index in {choice["index"] for choice in choices}:
            mine = [choice for choice in choices if choice["index"] == index]
            assert sink.text(index) == "".join(one["delta"].get("content") or "" for one in mine)
            ended = [one["finish_reason"] for one in mine if one.get("finish_reason")]
            assert sink.finish_reasons()[index] == ended[-1]
        counted = [event["usage"] for event in events if event.get("usage")][-1]
        assert sink.usage is not None
        assert sink.usage.prompt_tokens == counted["prompt_tokens"]
        assert sink.usage.completion_tokens == counted["completion_tokens"]
        details = counted.get("prompt_tokens_details") or {}
        assert sink.usage.cached_prompt_tokens == (details.get("cached_tokens") or 0)
        ids = [one for choice in choices for one in choice.get("token_ids") or []]
        assert [one for piece in sink.pieces for one in piece.token_ids] == ids
        raw = [json.loads(piece.raw_delta) for piece in sink.pieces if piece.raw_delta]
        for more in ("tool_calls", "logprobs"):
            told = [one.get(more) or one["delta"].get(more) for one in raw]
            sent = [choice.get(more) or choice["delta"].get(more) for choice in choices]
            assert [one for one in told if one] == [one for one in sent if one]
        assert asked["messages"] == exchange["request"]["messages"]


@pytest.mark.parametrize(("engine", "name"), names(errors=True))
async def test_a_recorded_refusal_is_told_as_what_it_is(engine: str, name: str) -> None:
    sink, _ = await replayed(engine, name, 0)
    assert isinstance(sink.error, ContextLengthExceeded if name == "error_context" else EngineRejected), sink.error
    assert not sink.pieces
    assert sink.error.message
    if isinstance(sink.error, EngineRejected):
        exchange = recorded(engine, name)
        body = (
            exchange["body"].removeprefix("data: ").partition("\n")[0]
        )  # some refuse inside a stream, after a good status
        assert sink.error.metadata["engine_status"] == str(json.loads(body)["error"]["code"])


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_recorded_engine_is_recognised_by_its_pages(engine: str) -> None:
    async with Replaying(engine) as server:
        backend = make_backend(BackendOptions(kind="openai_http", url=server.url, probe=False), "w-1")
        await backend.start()
        known, load = backend.info().capabilities, await backend.load()
        await backend.close()
    assert known.profile == engine
    assert known.version
    assert known.kv_blocks > 0
    assert (load.running, load.waiting) == (0, 0)
    assert load.kv_used is not None
