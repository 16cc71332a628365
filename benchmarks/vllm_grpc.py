"""vLLM's own gRPC service beside its HTTP, on the same model: what a token costs either side, and what it lacks.

    vllm serve MODEL --port 8000 …
    vllm serve MODEL --port 8001 --grpc …            (with smg-grpc-servicer)
    python -m benchmarks.vllm_grpc --http http://127.0.0.1:8000 --grpc 127.0.0.1:8001 --protos ENV/…/smg_grpc_proto/proto

HTTP is read by the adapter's own backend; gRPC by a plain loop over its stream, which leaves the token ids as they are: an
adapter would have to make text of them, and tokens of the prompt.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
import psutil
from grpc_tools import protoc

from services.inference_adapter.backends.factory import make_backend
from services.inference_adapter.backends.options import BackendOptions
from services.inference_adapter.interfaces import EngineSink
from streamway.errors import StreamwayError
from streamway.v1 import common_pb2

TOKENS = 256
PROMPT = "The river carries light over the stones. " * 8


@dataclass
class Run:
    """One way, once. `ours_s` and `theirs_s`: CPU of this process, and of the server's front without its engine core."""

    tokens: int = 0
    messages: int = 0
    first_s: list[float] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    seconds: float = 0.0
    ours_s: float = 0.0
    theirs_s: float = 0.0


class Sink(EngineSink):
    """Notes when pieces come."""

    def __init__(self, run: Run) -> None:
        self._run, self._began, self._last = run, time.monotonic(), 0.0
        self.over = asyncio.Event()

    def started(self) -> None: ...

    def piece(self, choice: int, text: str, **_: Any) -> None:
        self.note()

    def note(self) -> None:
        now = time.monotonic()
        if self._last:
            self._run.gaps_s.append(now - self._last)
        else:
            self._run.first_s.append(now - self._began)
        self._last = now
        self._run.messages += 1

    def ended(self, usage: common_pb2.Usage | None) -> None:
        self._run.tokens += usage.completion_tokens if usage is not None else 0
        self.over.set()

    def failed(self, error: StreamwayError) -> None:
        raise error


def front_of(port: int) -> psutil.Process:
    """The process that listens there."""
    for process in psutil.process_iter(["pid"]):
        try:
            if any(c.laddr.port == port for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN):
                return process
        except psutil.AccessDenied:
            continue
    raise SystemExit(f"nobody listens on {port}")


def cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def measured(streams: int, front: psutil.Process, one: Callable[[Run, int], Awaitable[None]]) -> Run:
    """`streams` side by side."""
    run, own = Run(), psutil.Process()
    before, theirs, began = cpu(own), cpu(front), time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(streams):
            group.create_task(_awaited(one(run, number)))
    run.seconds, run.ours_s, run.theirs_s = time.monotonic() - began, cpu(own) - before, cpu(front) - theirs
    return run


async def _awaited(work: Awaitable[None]) -> None:
    await work


def stubs_of(protos: Path) -> tuple[Any, Any]:
    """The modules of vLLM's protos, made here."""
    made = tempfile.mkdtemp(prefix="vllm-protos-")
    files = [str(protos / name) for name in ("vllm_engine.proto", "common.proto")]
    if protoc.main(["protoc", f"-I{protos}", f"--python_out={made}", f"--grpc_python_out={made}", *files]):
        raise SystemExit(f"cannot compile the protos in {protos}")
    sys.path.insert(0, made)
    return importlib.import_module("vllm_engine_pb2"), importlib.import_module("vllm_engine_pb2_grpc")


def tokenized(url: str, model: str) -> list[int]:
    """The prompt as vLLM's HTTP server has it, so that both do the same work."""
    body = {"model": model, "messages": [{"role": "user", "content": PROMPT}]}
    asked = urllib.request.Request(f"{url}/tokenize", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=60) as said:
        tokens: list[int] = json.loads(said.read())["tokens"]
    return tokens


async def compare(http: str, target: str, protos: Path, repeats: int) -> list[dict[str, Any]]:
    """Rows: way, streams, medians over the repeats."""
    pb2, services = stubs_of(protos)
    backend = make_backend(BackendOptions(kind="openai_http", url=http, slots=64, probe=False), "bench")
    await backend.start()
    model = backend.info().models[0].name
    prompt = tokenized(http, model)
    fronts = {"http": front_of(int(http.rpartition(":")[2])), "grpc": front_of(int(target.rpartition(":")[2]))}

    async def by_http(run: Run, number: int) -> None:
        body = {
            "messages": [{"role": "user", "content": PROMPT}],
            "max_tokens": TOKENS,
            "seed": number,
            "ignore_eos": True,
        }
        sink = Sink(run)
        backend.call(common_pb2.GenerationRequest(model=model, openai_body=json.dumps(body).encode()), sink)
        await sink.over.wait()

    async with grpc.aio.insecure_channel(target) as channel:
        stub = services.VllmEngineStub(channel)

        async def by_grpc(run: Run, number: int) -> None:
            sampling = pb2.SamplingParams(
                temperature=1, top_p=1, repetition_penalty=1, max_tokens=TOKENS, seed=number, ignore_eos=True, n=1
            )
            asked = pb2.GenerateRequest(
                request_id=f"{number}-{time.monotonic_ns()}",
                tokenized=pb2.TokenizedInput(input_ids=prompt, original_text=PROMPT),
                sampling_params=sampling,
                stream=True,
            )
            sink = Sink(run)
            async for said in stub.Generate(asked):
                if said.HasField("chunk"):
                    sink.note()
                    run.tokens += len(said.chunk.token_ids)

        rows = []
        for streams in (1, 8):
            runs: dict[str, list[Run]] = {"http": [], "grpc": []}
            for _ in range(repeats + 1):
                runs["http"].append(await measured(streams, fronts["http"], by_http))
                runs["grpc"].append(await measured(streams, fronts["grpc"], by_grpc))
            rows += [_row(way, streams, made[1:]) for way, made in runs.items()]  # the first warms up
    await backend.close()
    return rows


def _row(way: str, streams: int, runs: list[Run]) -> dict[str, Any]:
    def middle(values: list[float], digits: int) -> float:
        return round(statistics.median(values), digits)

    return {
        "way": way,
        "streams": streams,
        "tokens_per_s": middle([run.tokens / run.seconds for run in runs], 0),
        "first_ms": middle([statistics.median(run.first_s) * 1000 for run in runs], 1),
        "gap_ms": middle([statistics.median(run.gaps_s) * 1000 for run in runs], 2),
        "ours_us_per_token": middle([run.ours_s / run.tokens * 1e6 for run in runs], 0),
        "theirs_us_per_token": middle([run.theirs_s / run.tokens * 1e6 for run in runs], 0),
        "tokens_per_message": middle([run.tokens / run.messages for run in runs], 2),
    }


def main() -> None:
    words = argparse.ArgumentParser(prog="python -m benchmarks.vllm_grpc")
    words.add_argument("--http", required=True)
    words.add_argument("--grpc", required=True)
    words.add_argument("--protos", type=Path, required=True)
    words.add_argument("--repeats", type=int, default=5)
    given = words.parse_args()
    for row in asyncio.run(compare(given.http, given.grpc, given.protos, given.repeats)):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
