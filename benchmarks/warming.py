"""What warming is worth: the first turn of a conversation after its session moved to another worker, on real llama.cpp.

`python -m benchmarks.warming [--model FILE.gguf] [--turns 3] [--tokens 1500] [--threads 1]`: two workers, each with its own
llama.cpp (the model of `python scripts/install_model.py` unless another is given), and an embedded Valkey. A conversation has
its first turn at one worker; the other is told that it will come, as routers do, and gets the second turn: once without warming,
once when it has had the time to warm. Every pair is another conversation. Times are at the worker's own stream, from the
task's entry into the lane to the first token.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import secrets
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import structlog
from pydantic import SecretStr

from services.inference_adapter.app import Adapter
from services.inference_adapter.backends.llamacpp import LlamaCppBackend
from services.inference_adapter.backends.options import BackendOptions
from services.inference_adapter.settings import AdapterSettings
from services.supervisor.io import model_file
from streamway.config import SharedSettings
from streamway.runtime.ids import new_generation_id
from streamway.v1 import common_pb2
from streamway.valkey import keys
from streamway.valkey.connection import Valkey, connect
from tests.support.adapter_world import attached, enqueue
from tests.support.valkey_server import ValkeyServer

_LIMIT_S: Final = 120.0
_ANSWER_TOKENS: Final = 16
_WORDS: Final = (
    "river",
    "stone",
    "bridge",
    "water",
    "engine",
    "garden",
    "window",
    "letter",
    "market",
    "island",
    "winter",
    "kitchen",
)


@dataclass(frozen=True, slots=True)
class Turn:
    """Milliseconds to the first token; prompt tokens, and those of them that were in KV."""

    first_ms: float
    prompt: int
    cached: int
    text: str


async def main(options: argparse.Namespace) -> None:
    """Measures and prints."""
    model = model_file.find(options.model)
    cold: list[Turn] = []
    warm: list[Turn] = []
    spent: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        server = ValkeyServer(Path(folder))
        try:
            async with AsyncExitStack() as stack:
                valkey = await connect(server.url)
                stack.push_async_callback(valkey.aclose)
                workers = {}
                for name, warms in (("old", False), ("new", True)):
                    workers[name] = _worker(server.url, name, model, options.threads, warm=warms)
                    await workers[name].start()
                    stack.push_async_callback(workers[name].close)
                await _turn(workers["old"], valkey, "old", _conversation(random.Random(0), 50))  # loads what is lazy
                await _turn(workers["new"], valkey, "new", _conversation(random.Random(0), 50))
                for number in range(2 * options.turns):
                    asked = _conversation(random.Random(number + 1), options.tokens)
                    before = await _turn(workers["old"], valkey, "old", asked)
                    if number % 2:
                        spent.append(await _warmed(workers["new"], valkey, asked))
                    _go_on(asked, before.text)
                    (warm if number % 2 else cold).append(await _turn(workers["new"], valkey, "new", asked))
        finally:
            server.stop()
    print("| first turn after a move | first token ms: median (all) | prompt tokens | of them in KV |")
    print("|---|---|---|---|")
    for name, turns in (("not warmed", cold), ("warmed", warm)):
        times = ", ".join(f"{turn.first_ms:.0f}" for turn in turns)
        print(
            f"| {name} | {statistics.median(turn.first_ms for turn in turns):.0f} ({times})"
            f" | {statistics.median(turn.prompt for turn in turns):.0f}"
            f" | {statistics.median(turn.cached for turn in turns):.0f} |"
        )
    print(f"\nFrom the hint to a warmed prefix: {', '.join(f'{seconds:.1f}' for seconds in spent)} s.")


def _worker(url: str, name: str, model: Path, threads: int, *, warm: bool) -> Adapter:
    backend = BackendOptions(kind="llamacpp", model_path=model, slots=2, context_tokens=4096, threads=threads)
    # The pause after a warming call is of no interest here: each conversation waits for its own.
    settings = AdapterSettings(worker=name, port=0, operations_port=0, warm=warm, warm_prompts=0, warm_share=1.0)
    return Adapter(settings, SharedSettings(valkey_url=SecretStr(url)), LlamaCppBackend(backend, name))


def _conversation(draw: random.Random, tokens: int) -> common_pb2.GenerationRequest:
    """A request of about so many tokens; a word of these is one, and its space belongs to it."""
    asked = common_pb2.GenerationRequest(
        tenant="benchmark", session=f"{draw.getrandbits(64):016x}", durability=common_pb2.DURABILITY_RELAXED
    )
    asked.limits.max_tokens = _ANSWER_TOKENS
    asked.sampling.temperature = 0.0
    for role, part in (("system", 0.3), ("user", 0.7)):
        text = " ".join(draw.choice(_WORDS) for _ in range(int(tokens * part)))
        asked.messages.append(common_pb2.Message(role=role, content=text))
    return asked


def _go_on(asked: common_pb2.GenerationRequest, answer: str) -> None:
    asked.messages.append(common_pb2.Message(role="assistant", content=answer))
    asked.messages.append(common_pb2.Message(role="user", content="And what follows from that?"))


async def _turn(adapter: Adapter, valkey: Valkey, name: str, asked: common_pb2.GenerationRequest) -> Turn:
    asked.generation = new_generation_id()
    asked.model = adapter._models()[0]  # noqa: SLF001 — the benchmark stands in for a router
    async with attached(adapter) as stream:
        begun = time.perf_counter()
        number = await stream.subscribe(await enqueue(valkey, asked, worker=name))
        async with asyncio.timeout(_LIMIT_S):
            while not any(event.HasField("token") for event in stream.events[number]):
                if not await stream.read():
                    raise SystemExit("the worker ended its stream")
            first_ms = (time.perf_counter() - begun) * 1000
        events = await stream.all(number, _LIMIT_S)
    if not events[-1].HasField("finished"):
        raise SystemExit(f"the turn failed: {events[-1]}")
    usage = events[-1].finished.usage
    text = "".join(event.token.text for event in events if event.HasField("token"))
    return Turn(first_ms, usage.prompt_tokens, usage.cached_prompt_tokens, text)


async def _warmed(adapter: Adapter, valkey: Valkey, asked: common_pb2.GenerationRequest) -> float:
    """Tells the worker as a router would, and waits. Returns seconds."""
    key = keys.session(asked.tenant, asked.session)
    async with asyncio.timeout(_LIMIT_S):
        while not await valkey.hexists(key, f"context:{asked.model}"):
            await asyncio.sleep(0.05)
        before = _count(adapter)
        begun = time.perf_counter()
        member = msgspec.json.encode([asked.tenant, asked.model, asked.session])
        await valkey.zadd(keys.arrivals("new"), {member: time.time() * 1000 + secrets.randbelow(2)})
        while _count(adapter) == before:
            await asyncio.sleep(0.02)
    return time.perf_counter() - begun


def _count(adapter: Adapter) -> float:
    registry = adapter._registry  # noqa: SLF001
    return registry.get_sample_value("streamway_warmed_prefixes_total", {"kind": "session"}) or 0.0


if __name__ == "__main__":
    words = argparse.ArgumentParser(prog="python -m benchmarks.warming")
    words.add_argument("--model", type=Path)
    words.add_argument("--turns", type=int, default=3, help="conversations of each kind")
    words.add_argument("--tokens", type=int, default=1500, help="of the first turn's prompt, about")
    words.add_argument("--threads", type=int, default=1, help="of each engine")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    asyncio.run(main(words.parse_args()))
