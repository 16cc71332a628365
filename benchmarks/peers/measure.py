"""One load on one system: figures of the client, CPU of each process, memory, and how fast a cancel frees the engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Any, Final

from benchmarks.clients import http
from benchmarks.clients.plan import Plan, Tally
from benchmarks.peers.cases import Case
from benchmarks.peers.systems import KEY, Running, System
from tests.support.ports import free_port

_CANCELS: Final = 20
_CANCEL_LIMIT_S: Final = 5.0


@contextlib.contextmanager
def engine(rate: float) -> Iterator[str]:
    """The simulated engine as an HTTP server, `rate` tokens/s for each stream whatever the load; its URL."""
    port = free_port()
    # fmt: off
    command = [
        sys.executable, "-m", "benchmarks.simulated_engine", "--port", str(port), "--tokens-per-s", str(rate),
        "--slots", "16384", "--prefill-tokens-per-s", "1e9", "--prefill-chunk-tokens", "100000000",
        "--context-tokens", "2000000", "--kv-tokens", "100000000",
    ]
    # fmt: on
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().decode().strip()
            if not url:
                raise RuntimeError("the simulated engine did not start")
            yield url
        finally:
            process.terminate()


def measure(system: System, running: Running, case: Case, surface: str, durability: str) -> dict[str, Any]:
    """One row. µs of CPU a token by process, MB above what was used before, and the client's summary."""
    target = running.grpc if surface == "grpc" else running.url
    key = KEY if system.name == "litellm" else ""
    before, idle = running.cpu(), running.memory()
    # fmt: off
    command = [
        sys.executable, "-m", "benchmarks.load", "--surface", surface, "--target", target, "--streams", str(case.streams),
        "--tokens", str(case.tokens), "--rounds", str(case.rounds), "--ramp-s", str(case.ramp_s),
        "--prompt-bytes", str(case.prompt_bytes), "--repeated", str(case.repeated), "--durability", durability,
        "--api-key", key, "--limit-s", str(case.limit_s),
    ]
    # fmt: on
    peak = idle
    with subprocess.Popen(command, stdout=subprocess.PIPE) as load:
        while load.poll() is None:
            peak = max(peak, running.memory())
            time.sleep(0.5)
        assert load.stdout is not None
        figures = json.loads(load.stdout.read())
    after, made = running.cpu(), max(1, figures["tokens"])
    return {
        "load": figures,
        "us": {name: round((after.get(name, 0.0) - value) / made * 1e6, 2) for name, value in before.items()},
        "idle_mb": round(idle / 1e6, 1),
        "peak_mb": round(peak / 1e6, 1),
    }


def cancels(system: System, running: Running, engine_url: str) -> float:
    """Milliseconds from cutting a stream's connection until the engine is free: median of some, one after another."""
    key = KEY if system.name == "litellm" else ""
    plan = Plan(running.url, "simulated", 1, 2000, 1, 0.0, api_key=key, cut_at=5, durability="off")

    async def one() -> float:
        await http.streams(plan, Tally())
        cut = time.perf_counter()
        while time.perf_counter() - cut < _CANCEL_LIMIT_S:
            if await asyncio.to_thread(_running, engine_url) == 0:
                break
            await asyncio.sleep(0.001)
        return (time.perf_counter() - cut) * 1000

    return statistics.median(asyncio.run(one()) for _ in range(_CANCELS))


def _running(engine_url: str) -> int:
    with urllib.request.urlopen(f"{engine_url}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("simulated:requests_running"))
