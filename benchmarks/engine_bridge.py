"""What it costs to get a real llama.cpp's tokens into the adapter: inside its process, through a ring in shared memory, over a
unix socket, over TCP.

    python -m benchmarks.engine_bridge --tokens 128 --streams 1 4 --rounds 5 --ways none inside ring unix

Each way runs in a process of its own, in turn, on the services' event loop. The same model computes the same tokens in all of
them with two threads, which use more CPU than all others by far. Their share is taken from what the processes used, adapter and
engine together, by the kernel's own sum, in which threads that have ended are counted too; what remains is the price of the way:
making the chunk, carrying it, reading it. `none` makes the chunks and throws them away in the engine's process. Bytes are those
of one answer as they leave the engine, times how often they are copied between engine and adapter: once inside (into a Python
object), twice by the ring (into such an object and into the ring; they are read where they lie), twice by a socket (into the
kernel and out of it).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, Protocol

import uvloop

from benchmarks.ring_engine import RingEngine
from services.inference_adapter.backends.factory import make_backend
from services.inference_adapter.backends.options import BackendOptions
from services.inference_adapter.interfaces import EngineSink
from services.supervisor.io.model_file import find
from streamway.errors import StreamwayError
from streamway.v1 import common_pb2

_ROOT: Final = Path(__file__).resolve().parents[1]
_WAYS: Final = ("none", "inside", "ring", "unix", "tcp")
_THREADS: Final = 2
_PROMPT: Final = "Tell a long story about a river."
_COPIES: Final = {"none": 0, "inside": 1, "ring": 2, "unix": 2, "tcp": 2}
# An engine in a process of its own. Its two lines: where it listens, and how many bytes one answer has inside it.
_SERVER: Final = """
import json, os, sys
os.environ["GOMP_SPINCOUNT"] = "1000"
import xllamacpp
from services.inference_adapter.backends.llamacpp_child import configure
from services.inference_adapter.core.fitting import Shape
from streamway.runtime.processes import die_with_parent
die_with_parent(int(sys.argv[1]))
settings = configure(xllamacpp, model=sys.argv[2], name="m", socket=sys.argv[3], threads=2, shape=Shape(4, 1024, 1024))
settings.verbosity = 1
server = xllamacpp.Server(settings)
print(server.listening_address, flush=True)
os.read(0, 1)
os._exit(0)
"""


class Sink(EngineSink):
    """Notes when each piece came."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.over = asyncio.Event()
        self.error: StreamwayError | None = None

    def started(self) -> None:
        """Not measured."""

    def piece(self, choice: int, text: str, **_: Any) -> None:
        self.times.append(time.monotonic())

    def ended(self, usage: common_pb2.Usage | None) -> None:
        self.over.set()

    def failed(self, error: StreamwayError) -> None:
        self.error = error
        self.over.set()


def body_of(tokens: int) -> bytes:
    """The request that every way sends."""
    body = {"model": "m", "messages": [{"role": "user", "content": _PROMPT}], "max_tokens": tokens, "ignore_eos": True}
    return json.dumps({**body, "temperature": 0, "stream": True}).encode()


class Engine(Protocol):
    """What is measured."""

    def call(self, request: common_pb2.GenerationRequest, sink: EngineSink) -> object: ...


def process_seconds(pid: int) -> float:
    """CPU of a process and of all threads that it has had: its CPU clock, by the number that clock_getcpuclockid(3) makes."""
    return time.clock_gettime(~pid << 3 | 2)


def thread_times(pid: int) -> dict[int, float]:
    """CPU seconds of each living thread of a process."""
    times = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            times[int(task.name)] = int((task / "schedstat").read_text(encoding="ascii").split()[0]) / 1e9
        except (FileNotFoundError, ProcessLookupError):
            continue
    return times


class Used:
    """CPU of some processes from here on."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self._threads = [thread_times(pid) for pid in pids]
        self._began = [process_seconds(pid) for pid in pids]

    def so_far(self) -> tuple[float, float]:
        """Seconds of the two threads that compute, and of everything else."""
        everything = sum(process_seconds(pid) - began for pid, began in zip(self._pids, self._began, strict=True))
        each = (
            seconds - earlier.get(thread, 0.0)
            for pid, earlier in zip(self._pids, self._threads, strict=True)
            for thread, seconds in thread_times(pid).items()
        )
        compute = sum(sorted(each)[-_THREADS:])
        return compute, everything - compute


async def measure(engine: Engine, pids: list[int], streams: int, tokens: int) -> dict[str, float]:
    """One round: `streams` answers side by side."""
    request = common_pb2.GenerationRequest(model="m", openai_body=body_of(tokens))
    sinks = [Sink() for _ in range(streams)]
    used, began = Used(pids), time.monotonic()
    for sink in sinks:
        engine.call(request, sink)
    for sink in sinks:
        await sink.over.wait()
        if sink.error is not None:
            raise sink.error
    seconds = time.monotonic() - began
    compute_s, beside_s = used.so_far()
    # `none` has no pieces.
    gaps = sorted(1000 * (b - a) for sink in sinks for a, b in zip(sink.times, sink.times[1:], strict=False)) or [0.0]
    return {
        "cpu_us_a_token": 1e6 * beside_s / (streams * tokens),
        "compute_ms_a_token": 1e3 * compute_s / (streams * tokens),
        "tokens_a_second": streams * tokens / seconds,
        "first_token_ms": 1000 * statistics.median(sink.times[0] - began if sink.times else 0.0 for sink in sinks),
        "gap_p50_ms": statistics.median(gaps),
        "gap_p99_ms": gaps[int(0.99 * len(gaps))],
    }


async def wire_bytes(address: str, tokens: int) -> int:
    """Bytes of one answer over HTTP."""
    if address.startswith("unix:"):
        reader, writer = await asyncio.open_unix_connection(address.removeprefix("unix:"))
    else:
        host, _, port = address.removeprefix("http://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
    body = body_of(tokens)
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    size = 0
    while data := await reader.read(65536):
        size += len(data)
    writer.close()
    return size


async def run_way(way: str, streams: list[int], tokens: int) -> dict[str, Any]:
    """All of one way, in this process."""
    path = find(None)
    if way in ("none", "ring"):
        return await run_ring(way, path, streams, tokens)
    common = {"slots": 4, "context_tokens": 1024, "threads": _THREADS, "probe": False, "model_name": "m"}
    server: subprocess.Popen[bytes] | None = None
    with tempfile.TemporaryDirectory() as folder:
        if way == "inside":
            options = BackendOptions.model_validate({"kind": "llamacpp_inside", "model_path": path, **common})
        else:
            where = f"{folder}/e.sock" if way == "unix" else "127.0.0.1"
            server = subprocess.Popen(
                [sys.executable, "-c", _SERVER, str(os.getpid()), str(path), where],
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            assert server.stdout is not None
            url = server.stdout.readline().decode().strip().replace("unix://", "unix:")
            options = BackendOptions.model_validate({"kind": "llamacpp", "url": url, **common})
        backend = make_backend(options, "bench")
        await backend.start()
        pids = [os.getpid(), *([server.pid] if server is not None else [])]
        await measure(backend, pids, 1, 16)
        found: dict[str, Any] = {str(count): await measure(backend, pids, count, tokens) for count in streams}
        found["bytes"] = _COPIES[way] * (
            inside_bytes(backend, tokens) if way == "inside" else await wire_bytes(options.url, tokens)
        )
        await backend.close()
        if server is not None:
            server.kill()
            server.wait()
    return found


async def run_ring(way: str, path: Path, streams: list[int], tokens: int) -> dict[str, Any]:
    """The same through a ring, which no backend has, or with chunks that go nowhere."""
    with tempfile.TemporaryDirectory() as folder:
        engine = RingEngine(path, folder, _THREADS, dropped=way == "none")
        await engine.start()
        pids = [os.getpid(), engine.pid]
        await measure(engine, pids, 1, 16)
        found: dict[str, Any] = {str(count): await measure(engine, pids, count, tokens) for count in streams}
        before = engine.bytes
        await measure(engine, pids, 1, tokens)
        found["bytes"] = _COPIES[way] * (engine.bytes - before)
        await engine.close()
    return found


def inside_bytes(backend: Any, tokens: int) -> int:
    """Bytes of one answer as the extension gives it."""
    sizes: list[int] = []

    def heard(chunk: bytes) -> bool:
        sizes.append(len(chunk))
        return False

    backend._inside._server.handle_chat_completions(body_of(tokens), heard)  # noqa: SLF001 - seen nowhere else
    return sum(sizes)


def main() -> None:
    """Runs every way in turn and prints a table."""
    words = argparse.ArgumentParser(prog="python -m benchmarks.engine_bridge")
    words.add_argument("--tokens", type=int, default=128)
    words.add_argument("--streams", type=int, nargs="+", default=[1, 4])
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--ways", nargs="+", choices=_WAYS, default=_WAYS)
    words.add_argument("--way", choices=_WAYS, help="only this one, once, as JSON")
    given = words.parse_args()
    if given.way:
        print(json.dumps(uvloop.run(run_way(given.way, given.streams, given.tokens))))
        return
    arguments = ["--tokens", str(given.tokens), "--streams", *map(str, given.streams)]
    rows: dict[str, list[dict[str, Any]]] = {way: [] for way in given.ways}
    for number in range(given.rounds):
        # Each round begins with another way, so that none has the same neighbour always.
        for way in (*given.ways[number % len(given.ways) :], *given.ways[: number % len(given.ways)]):
            command = [sys.executable, "-m", "benchmarks.engine_bridge", "--way", way, *arguments]
            output = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE).stdout
            rows[way].append(json.loads(output.splitlines()[-1]))
            print(f"round {number + 1}, {way}: {json.dumps(rows[way][-1])}", file=sys.stderr)
    show(rows, [str(count) for count in given.streams])


def show(rows: dict[str, list[dict[str, Any]]], streams: list[str]) -> None:
    """The table: medians, and the least and the most of the price."""
    print(
        "| way | streams | CPU beside compute, µs a token | compute, ms a token | tokens/s | first token ms "
        "| gap p50 / p99 ms | bytes copied an answer |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for count in streams:
        for way, rounds in rows.items():
            each = {name: [round_[count][name] for round_ in rounds] for name in rounds[0][count]}
            cpu = each["cpu_us_a_token"]
            middle = {name: statistics.median(values) for name, values in each.items()}
            times = f"{middle['first_token_ms']:.0f} | {middle['gap_p50_ms']:.1f} / {middle['gap_p99_ms']:.1f}"
            print(
                f"| {way} | {count} | {middle['cpu_us_a_token']:.0f} [{min(cpu):.0f}–{max(cpu):.0f}] "
                f"| {middle['compute_ms_a_token']:.1f} | {middle['tokens_a_second']:.0f} "
                f"| {'– | –' if way == 'none' else times} | {rounds[0]['bytes']:,} |"
            )


if __name__ == "__main__":
    main()
