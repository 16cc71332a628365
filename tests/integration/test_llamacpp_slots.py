"""A real llama.cpp keeps its sessions' KV apart, carries it to another engine, and gives its memory back when nobody asks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from scripts.install_model import model_path
from services.inference_adapter.backends.factory import make_backend
from services.inference_adapter.backends.llamacpp import LlamaCppBackend
from services.inference_adapter.backends.options import BackendOptions
from streamway.journal import ChoiceSoFar
from streamway.v1 import common_pb2
from tests.support.engines import RecordingSink

MODEL = "smollm2-135m-instruct"
# At most so many tokens of a repeated prompt are computed again.
TAIL = 8


def installed() -> Path:
    path = model_path()
    if path is None:
        pytest.skip("left out: the model is not installed; run `python scripts/install_model.py`")
    return path


@asynccontextmanager
async def engine(**given: Any) -> AsyncIterator[LlamaCppBackend]:
    options = {"kind": "llamacpp", "model_path": installed(), "slots": 2, "context_tokens": 256, "threads": 1}
    made = make_backend(BackendOptions.model_validate({**options, "probe": False, **given}), "w")
    assert isinstance(made, LlamaCppBackend)
    try:
        await made.start()
        yield made
    finally:
        await made.close()


async def turn(backend: LlamaCppBackend, session: str, prompt: str, tenant: str = "t", **body: Any) -> RecordingSink:
    asked = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 2, "temperature": 0, **body}
    sink = RecordingSink()
    request = common_pb2.GenerationRequest(
        model=MODEL, tenant=tenant, session=session, openai_body=json.dumps(asked).encode()
    )
    backend.call(request, sink)
    return await sink.wait()


def computed(sink: RecordingSink) -> int:
    """Prompt tokens that were not in KV."""
    assert sink.usage is not None, sink.error
    return sink.usage.prompt_tokens - sink.usage.cached_prompt_tokens


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


ALICE = "Alice asks about trains, " + "and tea, " * 16
BOB = "Bob asks about boats, " + "and rain, " * 16


@pytest.mark.parametrize("kind", ["llamacpp", "llamacpp_inside"])
async def test_a_sessions_kv_goes_with_it_to_another_worker(tmp_path: Path, kind: str) -> None:
    async with engine(slot_folder=tmp_path / "slots", kind=kind) as first:
        cold = computed(await turn(first, "a", ALICE))
        await turn(first, "b", BOB)
        # A client's own wish for a slot would make it wait for another's.
        assert computed(await turn(first, "a", ALICE, id_slot=1)) <= TAIL
        assert computed(await turn(first, "b", BOB)) <= TAIL
        await first.park()
        await first.park()
    assert len(list((tmp_path / "slots").iterdir())) == 2
    async with engine(slot_folder=tmp_path / "slots", probe=True) as heir:
        # The one that is not there computes what the other has.
        assert cold > 40
        assert computed(await turn(heir, "a", ALICE)) <= TAIL
        assert computed(await turn(heir, "b", BOB, tenant="other")) > 40, "another tenant's session of the same name"
    assert len(list((tmp_path / "slots").iterdir())) == 1, "what was read is gone"


@pytest.mark.parametrize("kind", ["llamacpp", "llamacpp_inside"])
async def test_a_continued_answer_in_chinese_is_no_longer_than_was_asked(kind: str) -> None:
    """Its characters take up to three tokens each, and came in one piece each."""
    begun = "彩虹是一种美丽的现象"
    asked = {"messages": [{"role": "user", "content": "什么是彩虹？"}], "max_tokens": 30, "ignore_eos": True}
    request = common_pb2.GenerationRequest(model=MODEL, openai_body=json.dumps(asked).encode())
    async with engine(slots=1, kind=kind) as backend:
        sink = RecordingSink()
        backend.call(request, sink, ChoiceSoFar(text=begun, units=len(begun)))
        await sink.wait()
        # What it is asked for is what is left, by its own count: without that it would make 20.
        assert sink.usage is not None, sink.error
        assert sink.usage.completion_tokens == 30
        assert len(sink.pieces) <= 15
        given_up = RecordingSink()
        backend.call(request, given_up, ChoiceSoFar(text=begun, units=len(begun))).abort()
        assert computed(await turn(backend, "a", "Hi.")) > 0
        assert not given_up.pieces


async def test_an_idle_engine_gives_its_memory_back_and_finds_its_sessions_again(tmp_path: Path) -> None:
    async with engine(slot_folder=tmp_path / "slots", idle_unload_s=3) as backend:
        await turn(backend, "a", ALICE)
        before = resident_bytes(backend.info().pid)

        async def asleep() -> bool:
            return (await backend.load()).asleep

        async with asyncio.timeout(60):
            while not await asleep():
                await asyncio.sleep(0.25)
        assert resident_bytes(backend.info().pid) < before * 0.7
        assert computed(await turn(backend, "a", ALICE)) <= TAIL
        assert not await asleep()
