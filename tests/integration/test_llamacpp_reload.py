"""A worker with a real llama.cpp exchanges its weights: beside the old ones, after them, and not at all."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from redis.asyncio import Redis

from scripts.install_model import model_path
from services.inference_adapter.app import Adapter
from services.inference_adapter.backends.openai_http.backend import OpenAIHTTPBackend
from services.inference_adapter.backends.options import BackendOptions
from services.inference_adapter.backends.reloading import ReloadingBackend
from streamway.errors import from_rpc_error
from streamway.v1 import common_pb2, inference_pb2
from tests.support.adapter_world import Attached, assert_tile, attached, enqueue, eventually, kinds, request
from tests.support.engines import RecordingSink
from tests.support.two_workers import RELAXED, worker
from tests.support.valkey_server import ValkeyServer

LONG = 240


class Weights:
    """Two files, and a link that says which one is to be served."""

    def __init__(self, folder: Path) -> None:
        path = model_path()
        if path is None:
            pytest.skip("left out: the model is not installed; run `python scripts/install_model.py`")
        self.old, self.new, self.link = path, folder / "other.gguf", folder / "model.gguf"
        shutil.copyfile(path, self.new)
        self.serve(self.old)

    def serve(self, path: Path) -> None:
        self.link.unlink(missing_ok=True)
        self.link.symlink_to(path)

    def options(self, kind: str, **given: Any) -> BackendOptions:
        settings = {"kind": kind, "model_path": self.link, "slots": 2, "context_tokens": 512, "threads": 1}
        return BackendOptions.model_validate({**settings, "probe": False, **given})


@pytest.fixture
def weights(tmp_path: Path) -> Weights:
    return Weights(tmp_path)


def asked(tokens: int, **fields: Any) -> common_pb2.GenerationRequest:
    body = {"messages": [{"role": "user", "content": "Tell a story."}], "max_tokens": tokens, "ignore_eos": True}
    return request(model="model", openai_body=json.dumps(body).encode(), **fields)


async def reload(stream: Attached) -> inference_pb2.ReloadResponse:
    done: inference_pb2.ReloadResponse = await stream.stub.Reload(inference_pb2.ReloadRequest(), timeout=120)
    return done


async def reloading(stream: Attached) -> str:
    return str((await stream.stub.GetLoad(inference_pb2.GetLoadRequest(), timeout=20)).reloading)


async def ask(stream: Attached, valkey: Redis, tokens: int) -> int:
    """The subscription of a new answer, behind its `accepted`."""
    return await stream.subscribe(await enqueue(valkey, asked(tokens, durability=RELAXED), worker="a"), after=1)


async def served_file(address: str) -> str:
    """As the engine itself says."""
    engine = OpenAIHTTPBackend(BackendOptions(kind="openai_http", url=address), "probe")
    _, body = await engine.get("/props")
    await engine.close()
    return Path(json.loads(body)["model_path"]).resolve().name


async def whole(stream: Attached, number: int, tokens: int) -> None:
    """An answer that was read to its end as one text by one engine."""
    events = await stream.all(number, within_s=120)
    assert_tile(events)
    assert kinds(events)[-1] == "finished"
    assert "taken_over" not in kinds(events)
    assert events[-1].finished.usage.completion_tokens == tokens


async def test_new_weights_are_loaded_while_the_old_ones_serve(
    weights: Weights, valkey: Redis, valkey_server: ValkeyServer
) -> None:
    backend = ReloadingBackend(weights.options("llamacpp_inside"), "a")
    async with worker(valkey_server.url, "a", backend) as adapter, attached(adapter) as stream:
        before = backend.info()
        long = await ask(stream, valkey, LONG)
        await stream.until(long, 4, within_s=60)
        weights.serve(weights.new)
        exchange = asyncio.get_running_loop().create_task(reload(stream))
        await eventually(lambda: reloading(stream), "the new weights serve; the old ones end their last answers", 60)
        with pytest.raises(grpc.aio.AioRpcError) as again:
            await reload(stream)
        assert "already" in from_rpc_error(again.value).message
        # What comes now goes to the new ones, while the old ones still make theirs.
        short = await ask(stream, valkey, 8)
        await whole(stream, short, 8)
        after = backend.info()
        assert after.address != before.address
        assert after.models == before.models, "clients ask for the same name"
        assert await served_file(after.address) == "other.gguf"
        assert not exchange.done()
        await whole(stream, long, LONG)
        done = await exchange
        assert (done.file, done.why_not_beside) == (str(weights.link), "")
        assert 0 < done.load_ms < done.took_ms
        assert not Path(before.address.removeprefix("unix:")).exists(), "the old engine is gone"
        assert await reloading(stream) == ""
        await a_bad_file_leaves_the_weights_alone(weights, stream, adapter, valkey)


async def a_bad_file_leaves_the_weights_alone(
    weights: Weights, stream: Attached, adapter: Adapter, valkey: Redis
) -> None:
    cut = weights.link.with_name("cut.gguf")
    with weights.new.open("rb") as file:
        cut.write_bytes(file.read(3_000_000))
    weights.serve(cut)
    address = adapter._backend.info().address
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await reload(stream)
    assert "it is cut short; download it" in from_rpc_error(refused.value).message
    assert adapter._backend.info().address == address
    number = await ask(stream, valkey, 4)
    await whole(stream, number, 4)


async def test_without_room_for_both_the_old_answers_end_first(weights: Weights) -> None:
    backend = ReloadingBackend(weights.options("llamacpp"), "a", room=lambda _: 1)
    try:
        await backend.start()
        first, second = RecordingSink(), RecordingSink()
        backend.call(asked(40), first)
        await asyncio.wait_for(first.first.wait(), 60)
        weights.serve(weights.new)
        exchange = asyncio.get_running_loop().create_task(backend.reload())
        await eventually(lambda: backend.reloading.startswith("the old weights end their answers before"), True, 60)
        # Begun while nothing takes it: it waits for the new ones.
        backend.call(asked(4), second)
        await first.wait()
        assert first.usage is not None, first.error
        assert first.usage.completion_tokens == 40
        assert not second.started_count
        done = await exchange
        await second.wait()
        assert second.finish_reasons() == {0: "length"}
        assert "memory: 0 of 2 slots" in done.why_not_beside
        assert await served_file(backend.info().address) == "other.gguf"
    finally:
        await backend.close()
