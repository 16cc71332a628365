"""llama.cpp with a real model: what only its own server can show."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from scripts.install_model import model_path
from services.inference_adapter.backends.factory import make_backend
from services.inference_adapter.backends.llamacpp import LlamaCppBackend
from services.inference_adapter.backends.llamacpp_process import remove_left_folders
from services.inference_adapter.backends.openai_http.backend import OpenAIHTTPBackend
from services.inference_adapter.backends.options import BackendOptions
from streamway.v1 import common_pb2
from tests.support.engines import RecordingSink

PARENT = """
import asyncio, sys
from pathlib import Path
from services.inference_adapter.backends.factory import make_backend
from services.inference_adapter.backends.options import BackendOptions

async def main():
    options = BackendOptions(kind="llamacpp", model_path=Path(sys.argv[1]), slots=1, context_tokens=256, probe=False)
    backend = make_backend(options, "w")
    await backend.start()
    print("engine", backend.info().pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def options() -> BackendOptions:
    path = model_path()
    if path is None:
        pytest.skip("left out: the model is not installed; run `python scripts/install_model.py`")
    return BackendOptions(kind="llamacpp", model_path=path, slots=1, context_tokens=2048, probe=False)


# A process of its own, and the test's.
BOTH = pytest.mark.parametrize("backend", ["llamacpp", "llamacpp_inside"], indirect=True)


@pytest.fixture
async def backend(request: pytest.FixtureRequest, options: BackendOptions) -> AsyncIterator[LlamaCppBackend]:
    kind = getattr(request, "param", "llamacpp")
    made = make_backend(options.model_copy(update={"kind": kind}), "w-1")
    assert isinstance(made, LlamaCppBackend)
    try:
        await made.start()
        yield made
    finally:
        await made.close()


def request(prompt: str, **body: Any) -> common_pb2.GenerationRequest:
    made = {"messages": [{"role": "user", "content": prompt}], "ignore_eos": True, **body}
    return common_pb2.GenerationRequest(model="smollm2-135m-instruct", openai_body=json.dumps(made).encode())


async def busy_slots(probe: OpenAIHTTPBackend) -> int:
    _, body = await probe.get("/slots")
    return sum(slot["is_processing"] for slot in json.loads(body))


async def freed_after(probe: OpenAIHTTPBackend, limit_s: float) -> float:
    """Seconds until the server itself says that no slot is busy."""
    began = time.monotonic()
    while await busy_slots(probe):
        assert time.monotonic() - began < limit_s, "the slot is still busy"
        await asyncio.sleep(0.01)
    return time.monotonic() - began


@pytest.mark.alone
async def test_a_cancel_while_tokens_flow_frees_the_servers_slot(backend: LlamaCppBackend) -> None:
    probe = OpenAIHTTPBackend(BackendOptions(kind="openai_http", url=backend.info().address), "probe")
    sink = RecordingSink()
    call = backend.call(request("Tell a very long story.", max_tokens=1500), sink)
    await asyncio.wait_for(sink.first.wait(), 30)
    assert await busy_slots(probe) == 1
    call.abort()
    # The whole story takes half a minute.
    await freed_after(probe, 5)
    await probe.close()


@BOTH
async def test_a_cancel_lets_the_waiting_request_in(backend: LlamaCppBackend) -> None:
    first, second = RecordingSink(), RecordingSink()
    call = backend.call(request("Tell a very long story.", max_tokens=1500), first)
    await asyncio.wait_for(first.first.wait(), 30)
    backend.call(request("Say hi.", max_tokens=3), second)
    await asyncio.sleep(0.2)
    assert not second.pieces
    call.abort()
    await second.wait(30)
    assert second.finish_reasons() == {0: "length"}


@pytest.mark.alone
@BOTH
async def test_a_cancel_in_prefill_frees_the_slot(backend: LlamaCppBackend) -> None:
    """In prefill llama.cpp looks for cancels between its batches, which are kept small for that."""
    first, second = RecordingSink(), RecordingSink()
    call = backend.call(request("word " * 1900, max_tokens=1), first)
    await asyncio.sleep(0.3)
    call.abort()
    assert not first.pieces, "the prefill was over before the cancel"
    began = time.monotonic()
    backend.call(request("Say hi.", max_tokens=1), second)
    await second.wait(20)
    # The whole prefill takes over ten seconds.
    assert time.monotonic() - began < 5


async def test_the_kv_use_of_a_running_answer_is_told(backend: LlamaCppBackend) -> None:
    assert (await backend.load()).kv_used == 0.0
    sink = RecordingSink()
    call = backend.call(request("word " * 500, max_tokens=1000), sink)
    await asyncio.wait_for(sink.first.wait(), 30)
    await asyncio.sleep(2.0)
    load = await backend.load()
    assert load.running == 1
    assert load.kv_used is not None
    assert 0.2 < load.kv_used < 1.0
    call.abort()


async def test_a_running_server_is_attached_to_by_its_address(backend: LlamaCppBackend) -> None:
    other = make_backend(BackendOptions(kind="llamacpp", url=backend.info().address), "w-2")
    await other.start()
    info = other.info()
    assert (info.models[0].name, info.models[0].context_tokens, info.slots, info.pid) == (
        "smollm2-135m-instruct",
        2048,
        1,
        0,
    )
    sink = RecordingSink()
    other.call(request("Say hi.", max_tokens=3), sink)
    await sink.wait()
    assert sink.usage is not None
    assert sink.usage.completion_tokens == 3
    await other.close()
    assert (await backend.load()).running == 0


async def test_the_server_dies_with_a_killed_adapter(options: BackendOptions) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(options.model_path), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    line = b""
    while not line.startswith(b"engine "):
        line = await asyncio.wait_for(parent.stdout.readline(), 30)
        assert line
    engine = int(line.split()[1])
    os.kill(engine, 0)
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    until = time.monotonic() + 3
    while _lives(engine):
        assert time.monotonic() < until, "the engine outlived its adapter"
        await asyncio.sleep(0.02)
    # The next start removes what the kill left; its last threads may hold the socket for a moment more.
    left = list(Path(tempfile.gettempdir()).glob(f"streamway-llama-{parent.pid}-*"))
    assert len(left) == 1
    while left[0].exists():
        assert time.monotonic() < until + 3
        remove_left_folders(left[0].parent)
        await asyncio.sleep(0.02)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
