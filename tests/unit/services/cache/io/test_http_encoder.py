"""`/v1/embeddings` of a real server, and of one that answers anything."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from services.cache.interfaces import EncoderFailed
from services.cache.io.encoders.http import HttpEncoder
from tests.support.serving import served


class Server:
    """Answers with `reply`, and remembers what it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.reply: Any = {}
        self.status = 200
        self.asked: list[Any] = []
        self.keys: list[str | None] = []

    async def embeddings(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
        self.keys.append(request.headers.get("Authorization"))
        text = self.reply if isinstance(self.reply, str) else json.dumps(self.reply)
        return web.Response(text=text, status=self.status, content_type="application/json")


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    async with served(web.post("/v1/embeddings", made.embeddings)) as url:
        made.url = f"{url}/v1"
        yield made


@pytest.fixture
async def encoder(server: Server) -> AsyncIterator[HttpEncoder]:
    made = HttpEncoder(server.url, "e5", "secret", 5.0)
    yield made
    await made.close()


def item(index: int, *numbers: float) -> dict[str, Any]:
    return {"object": "embedding", "index": index, "embedding": numbers}


async def test_vectors_come_in_the_order_of_their_texts(server: Server, encoder: HttpEncoder) -> None:
    server.reply = {"object": "list", "model": "e5", "data": [item(1, 0, 1), item(0, 1, 0)], "usage": {}}
    first, second = await encoder.encode(["a", "b"])
    assert first is not None
    assert second is not None
    assert (first.tolist(), second.tolist()) == ([1, 0], [0, 1])
    assert server.asked == [{"model": "e5", "input": ["a", "b"]}]
    assert server.keys == ["Bearer secret"]
    assert "secret" not in encoder.name


@pytest.mark.parametrize(
    "reply",
    [
        {},
        [],
        "no JSON",
        {"data": []},
        {"data": [item(0, 1)]},
        {"data": [item(0, 1), item(0, 1)]},
        {"data": [item(0, 1), item(1, 1), item(2, 1)]},
        {"data": [item(0, 1), {"index": 1, "embedding": ["x"]}]},
        {"data": [item(0, 1), {"index": 1, "embedding": "AAAA"}]},
        '{"data": [' + " " * 9_000_000,
    ],
)
async def test_anything_else_is_a_failure_that_says_no_text(server: Server, encoder: HttpEncoder, reply: Any) -> None:
    server.reply = reply
    with pytest.raises(EncoderFailed) as failed:
        await encoder.encode(["alpha", "beta"])
    assert "alpha" not in str(failed.value)


async def test_a_server_that_refuses_or_is_away_is_a_failure(server: Server, encoder: HttpEncoder) -> None:
    server.status = 503
    with pytest.raises(EncoderFailed, match="503"):
        await encoder.encode(["a"])
    nobody = HttpEncoder("http://127.0.0.1:1/v1", "e5", "", 1.0)
    with pytest.raises(EncoderFailed):
        await nobody.encode(["a"])
    await nobody.close()
