"""An engine with vLLM's calls for sleep: put to sleep when nobody wants anything, and awake before a call reaches it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from services.inference_adapter.backends.openai_http.backend import OpenAIHTTPBackend
from services.inference_adapter.backends.options import BackendOptions
from streamway.errors import EngineFailed
from streamway.runtime.process import StartError
from streamway.v1 import common_pb2
from tests.support.engines import RecordingSink
from tests.support.serving import served

TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


class Engine:
    """As vLLM answers; it refuses questions in its sleep."""

    def __init__(self) -> None:
        self.asleep = False
        self.has_sleep = True
        self.wakes_with = 200
        self.running = 0
        self.asked: list[str] = []
        self.may_wake = asyncio.Event()
        self.may_wake.set()
        self.url = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Engine]:
        async with served(
            web.get("/v1/models", self._models),
            web.get("/metrics", self._metrics),
            web.get("/is_sleeping", self._is_sleeping),
            web.post("/sleep", self._sleep),
            web.post("/wake_up", self._wake),
            web.post("/v1/chat/completions", self._chat),
        ) as self.url:
            yield self

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "vllm"}]})

    async def _metrics(self, _: web.Request) -> web.Response:
        names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        return web.Response(text="".join(f"vllm:{n} {self.running if 'running' in n else 0}\n" for n in names))

    async def _is_sleeping(self, _: web.Request) -> web.Response:
        if not self.has_sleep:
            raise web.HTTPNotFound
        return web.json_response({"is_sleeping": self.asleep})

    async def _sleep(self, request: web.Request) -> web.Response:
        self.asked.append(f"sleep {request.query_string}")
        self.asleep = True
        return web.Response()

    async def _wake(self, _: web.Request) -> web.Response:
        self.asked.append("wake")
        await self.may_wake.wait()
        if self.wakes_with == 200:
            self.asleep = False
        return web.Response(status=self.wakes_with)

    async def _chat(self, _: web.Request) -> web.Response:
        self.asked.append("chat")
        if self.asleep:
            return web.Response(status=500)
        return web.Response(body=TOKEN, content_type="text/event-stream")


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with Engine().serving() as engine:
        yield engine


@asynccontextmanager
async def driven(engine: Engine, **options: Any) -> AsyncIterator[OpenAIHTTPBackend]:
    wanted = {"kind": "openai_http", "url": engine.url, "probe": False, "idle_unload_s": 0.05, **options}
    backend = OpenAIHTTPBackend(BackendOptions.model_validate(wanted), "w-1")
    await backend.start()
    try:
        yield backend
    finally:
        await backend.close()


def ask(backend: OpenAIHTTPBackend) -> tuple[RecordingSink, Any]:
    sink = RecordingSink()
    return sink, backend.call(common_pb2.GenerationRequest(generation="g", model="m", openai_body=b"{}"), sink)


async def asleep(backend: OpenAIHTTPBackend) -> None:
    async with asyncio.timeout(10):
        while not (await backend.load()).asleep:
            await asyncio.sleep(0.01)


async def test_without_work_it_sleeps_and_calls_wake_it_once(engine: Engine) -> None:
    async with driven(engine) as backend:
        await asleep(backend)
        assert engine.asked == ["sleep level=1&mode=wait"]
        sinks = [ask(backend)[0] for _ in range(3)]
        for sink in sinks:
            await sink.wait(10)
            assert (sink.text(), sink.error) == ("hi", None)
        assert engine.asked[1:] == ["wake", "chat", "chat", "chat"]
        assert not (await backend.load()).asleep
        await asleep(backend)


async def test_a_call_that_is_aborted_while_it_wakes_is_not_sent(engine: Engine) -> None:
    async with driven(engine) as backend:
        await asleep(backend)
        engine.may_wake.clear()
        _, call = ask(backend)
        async with asyncio.timeout(10):
            while "wake" not in engine.asked:
                await asyncio.sleep(0.01)
        call.abort()
        assert backend.running == 0
        engine.may_wake.set()
        sink, _ = ask(backend)
        assert (await sink.wait(10)).text() == "hi"
        assert engine.asked.count("chat") == 1


async def test_one_that_does_not_wake_fails_the_call_and_is_asked_again_for_the_next(engine: Engine) -> None:
    async with driven(engine) as backend:
        await asleep(backend)
        engine.wakes_with = 500
        sink, _ = ask(backend)
        await sink.wait(10)
        assert isinstance(sink.error, EngineFailed)
        assert "wake" in sink.error.message
        engine.wakes_with = 200
        sink, _ = ask(backend)
        assert (await sink.wait(10)).text() == "hi"


async def test_a_call_that_comes_as_it_is_about_to_sleep_keeps_it_awake(engine: Engine) -> None:
    async with driven(engine) as backend:
        await asyncio.sleep(0.1)
        await backend.load()
        # What puts it to sleep has been started and has not run yet.
        sink, _ = ask(backend)
        assert (await sink.wait(10)).text() == "hi"
        assert engine.asked == ["chat"]


async def test_one_that_others_use_is_left_awake(engine: Engine) -> None:
    engine.running = 1
    async with driven(engine) as backend:
        for _ in range(20):
            assert not (await backend.load()).asleep
            await asyncio.sleep(0.01)
    assert engine.asked == []


async def test_one_that_is_found_asleep_is_woken_at_the_start(engine: Engine) -> None:
    engine.asleep = True
    async with driven(engine):
        assert engine.asked == ["wake"]
    engine.asleep, engine.wakes_with = True, 500
    with pytest.raises(StartError, match="does not wake"):
        async with driven(engine):
            pass


async def test_without_a_sleep_mode_it_says_what_is_missing_and_works(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.has_sleep = False
    async with driven(engine) as backend:
        assert "--enable-sleep-mode" in capsys.readouterr().out
        await asyncio.sleep(0.1)
        assert not (await backend.load()).asleep
        sink, _ = ask(backend)
        assert (await sink.wait(10)).text() == "hi"
    assert engine.asked == ["chat"]


async def test_where_it_is_not_asked_for_nothing_is_asked(engine: Engine) -> None:
    async with driven(engine, idle_unload_s=0) as backend:
        await backend.load()
    assert engine.asked == []
