"""Who gets which connection to an engine."""

from __future__ import annotations

import asyncio

import pytest

from services.inference_adapter.backends.openai_http.backend import OpenAIHTTPBackend
from services.inference_adapter.backends.options import BackendOptions
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2
from tests.support.engines import RecordingSink, ScriptedServer

# Good for a call, and for a check, which reads nothing but its length.
BODY = b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
ANSWER = [
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
]


async def test_a_call_never_gets_the_connection_of_a_health_check() -> None:
    """The check closes it when it has its answer: a call that has just taken it would wait for ever."""
    async with TaskScope("test") as scope:
        for turns in range(1000):
            async with ScriptedServer(ANSWER, close=False) as server:
                options = {"kind": "openai_http", "url": server.url, "keep_alive": True}
                backend = OpenAIHTTPBackend(BackendOptions.model_validate(options), "w-1")
                checking = scope.spawn(backend.get("/v1/models"), "check")
                # The call begins at every turn of the loop that a check takes, one after the other.
                for _ in range(turns):
                    await asyncio.sleep(0)
                was_over = checking.done()
                sink = RecordingSink()
                backend.call(common_pb2.GenerationRequest(model="m", openai_body=b"{}"), sink)
                assert await checking == (200, BODY)
                await sink.wait(10)
                assert sink.error is None
                await backend.close()
            if was_over:
                return
    raise AssertionError("the check never ended before the call began")


@pytest.mark.parametrize(
    ("options", "connections"),
    [({}, 1), ({"keep_alive": False}, 3), ({"kept_connections": 0}, 3), ({"kept_s": 0.05}, 3), ({"kept_s": 3600}, 1)],
)
async def test_a_connection_is_used_again_unless_none_is_kept_or_it_has_been_idle_for_too_long(
    options: dict[str, object], connections: int
) -> None:
    async with ScriptedServer(ANSWER, close=False) as server:
        backend = OpenAIHTTPBackend(
            BackendOptions.model_validate({"kind": "openai_http", "url": server.url, **options}), "w-1"
        )
        for _ in range(3):
            sink = RecordingSink()
            backend.call(common_pb2.GenerationRequest(model="m", openai_body=b"{}"), sink)
            await sink.wait(10)
            assert sink.error is None
            await asyncio.sleep(0.1)
        assert server.connections == connections
        await backend.close()
