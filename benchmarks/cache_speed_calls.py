"""Lookups as clients of the mesh see them, and how late a cache's event loop is while it answers them."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from benchmarks.cache_speed_index import Lag, percentile
from services.cache.app import CacheApp
from services.cache.settings import CacheSettings
from streamway.cachestatus import Heard
from streamway.config import SharedSettings
from streamway.rpc import open_channel
from streamway.runtime.tasks import TaskScope
from streamway.v1 import cache_pb2, cache_pb2_grpc, common_pb2, router_pb2, router_pb2_grpc
from tests.support.mesh import MeshProcesses
from tests.support.valkey_server import ValkeyServer
from tests.unit.services.cache.requests import answer, typed

EXACT_PER_S: Final = 200
_STREAM: Final = 500
_FIRST_TOKEN_S: Final = 0.15
_THINGS: Final = ("password", "router", "printer", "invoice", "calendar", "password manager", "headset", "browser")
_VERBS: Final = ("reset", "configure", "connect", "print", "share", "clean", "replace", "update", "export", "install")
_PLACES: Final = (
    "at home",
    "in the office",
    "on a train",
    "in a hotel",
    "at school",
    "in the library",
    "abroad",
    "offline",
)
# Speed and not quality: a known paraphrase is to be a hit.
_SERVES: Final[dict[str, Any]] = {
    "semantic_threshold": 0.85,
    "semantic_audit_share": 0,
    "semantic_compare_share": 0,
    "semantic_rules_off": ("swap", "insertion"),
    "encoder_timeout_s": 2.0,
}


def questions() -> list[tuple[str, str]]:
    """Questions of about ten tokens, and the same in other words. None is asked twice: vectors of texts are kept."""
    return [
        (f"How do I {verb} the {thing} {place}?", f"How can I {verb} the {thing} {place}?")
        for verb in _VERBS
        for thing in _THINGS
        for place in _PLACES
    ]


def asks(text: str, policy: common_pb2.CachePolicy.ValueType, model: str = "m") -> common_pb2.GenerationRequest:
    """A request for the cache."""
    request = typed(text, cache=policy, model=model)
    assert isinstance(request, common_pb2.GenerationRequest)
    return request


async def node(url: str) -> None:
    """A cache process that says where it is, and for each line it reads how late its loop was since the last one."""
    app = CacheApp(CacheSettings(port=0, operations_port=0, **_SERVES), SharedSettings(valkey_url=SecretStr(url)))
    await app.start()
    lag = Lag()
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with TaskScope("node") as scope:
        scope.spawn(lag.run(), "lag")
        print(json.dumps(app.address), flush=True)
        while await reader.readline():
            print(json.dumps(lag.percentiles()), flush=True)
    await app.close()


class _Node:
    """That process, from outside."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def line(self, ask: bool = True) -> Any:
        """What it says next."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if ask:
            self._process.stdin.write(b"\n")
        while not (line := (await self._process.stdout.readline()).strip()).startswith((b"[", b'"')):
            if not line and self._process.returncode is not None:
                raise SystemExit("the cache ended")
        return json.loads(line)

    async def close(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


async def measure_calls(seconds: float) -> list[str]:
    """Lines of a Markdown table: one cache process, its callers in this one."""
    with tempfile.TemporaryDirectory() as folder:
        server = ValkeyServer(Path(folder))
        command = [sys.executable, "-m", "benchmarks.cache_speed", "--node", server.url]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        cache = _Node(process)
        try:
            channel = open_channel(await cache.line(ask=False), SharedSettings(valkey_url=SecretStr(server.url)))
            stub = cache_pb2_grpc.CacheServiceStub(channel)
            lines = await _calls(stub, cache, seconds)
            await channel.close()
            return lines
        finally:
            await cache.close()
            server.stop()


async def _calls(stub: Any, cache: _Node, seconds: float) -> list[str]:
    pairs = questions()
    for asked, _ in pairs:
        request = asks(asked, common_pb2.CACHE_POLICY_SEMANTIC)
        await stub.Store(cache_pb2.StoreRequest(request=request, events=answer("It is easy.")))
        await asyncio.sleep(0.02)
    await asyncio.sleep(2)
    lines = [
        "| lookups | each second | p50 / p99 ms | hits | loop lag p50 / p99 / most ms |",
        "|---|---|---|---|---|",
    ]
    exact = [asks(asked, common_pb2.CACHE_POLICY_EXACT) for asked, _ in pairs]
    alike = [asks(other, common_pb2.CACHE_POLICY_SEMANTIC) for _, other in pairs]
    for name, requests, per_s in (("exact", exact, EXACT_PER_S), ("semantic", alike, 10)):
        await cache.line()
        times, hits = await _at_rate(stub, requests, per_s, min(int(seconds * per_s), 100_000))
        late = await cache.line()
        lines.append(
            f"| {name} | {per_s} | {percentile(times, 0.5):.2f} / {percentile(times, 0.99):.2f} | {hits}"
            f" of {len(times)} | {late[0]:.2f} / {late[1]:.2f} / {late[2]:.1f} |"
        )
    return [*lines, "", *await _stream(stub)]


async def _stream(stub: Any) -> list[str]:
    """Mean of a lookup over repeats (32 %), paraphrases (48 %) and new questions (20 %), one after the other."""
    pairs = questions()
    lines = ["| a stream of 500 | mean / p50 / p99 ms | exact, alike, none |", "|---|---|---|"]
    for name, policy in (
        ("exact only", common_pb2.CACHE_POLICY_EXACT),
        ("with the semantic level", common_pb2.CACHE_POLICY_SEMANTIC),
    ):
        times: list[float] = []
        outcomes: Counter[int] = Counter()
        draw = random.Random(1)
        for number in range(_STREAM):
            kind = draw.random()
            asked, other = pairs[number % len(pairs)]
            # No text that another part of the run has had encoded.
            text = (
                asked if kind < 0.32 else f"{other[:-1]}, please?" if kind < 0.8 else f"Who painted picture {number}?"
            )
            began = time.perf_counter()
            found = await stub.Lookup(cache_pb2.LookupRequest(request=asks(text, policy)))
            times.append((time.perf_counter() - began) * 1000)
            outcomes[found.outcome] += 1
        counts = (outcomes[cache_pb2.CACHE_OUTCOME_HIT_EXACT], outcomes[cache_pb2.CACHE_OUTCOME_HIT_SEMANTIC])
        lines.append(
            f"| {name} | {sum(times) / len(times):.2f} / {percentile(times, 0.5):.2f} / {percentile(times, 0.99):.2f}"
            f" | {counts[0]}, {counts[1]}, {_STREAM - sum(counts)} |"
        )
    return lines


async def _at_rate(stub: Any, requests: Sequence[Any], per_s: int, count: int) -> tuple[list[float], int]:
    times: list[float] = []
    hits = 0

    async def one(request: Any) -> None:
        nonlocal hits
        began = time.perf_counter()
        found = await stub.Lookup(cache_pb2.LookupRequest(request=request))
        times.append((time.perf_counter() - began) * 1000)
        hits += found.outcome != cache_pb2.CACHE_OUTCOME_MISS

    async with asyncio.TaskGroup() as group:
        start = time.perf_counter()
        for number in range(count):
            group.create_task(one(requests[number % len(requests)]))
            await asyncio.sleep(max(0.0, start + (number + 1) / per_s - time.perf_counter()))
    return times, hits


async def measure_mesh(rounds: int) -> list[str]:
    """Lines of a Markdown table: what a lookup adds, and what a hit takes, from a gRPC client of the router."""
    environment = {f"STREAMWAY_CACHE_{name.upper()}": _plain(value) for name, value in _SERVES.items()}
    # Short answers that end by themselves: others are not stored.
    environment["STREAMWAY_ADAPTER_SIMULATION__ANSWER_TOKENS"] = "6"
    environment["STREAMWAY_ROUTER_CACHE_SEMANTIC_BUDGET_MS"] = "1000"
    # As long as a short prompt takes an engine: a semantic hit comes before the first token, or it is none.
    environment["STREAMWAY_ADAPTER_SIMULATION__FAULTS__FIRST_TOKEN_DELAY_S"] = str(_FIRST_TOKEN_S)
    # The mesh with several ways to ask, one after the other in each round, so that all see the same machine.
    with tempfile.TemporaryDirectory() as folder:
        mesh = await asyncio.to_thread(MeshProcesses, Path(folder), environment=environment)
        try:
            channel = open_channel(mesh.address("router-0"), SharedSettings())
            stub = router_pb2_grpc.RouterServiceStub(channel)
            model = (await stub.ListModels(router_pb2.ListModelsRequest())).models[0].name
            beside = open_channel(mesh.address("cache-0"), SharedSettings())
            times = await _rounds(stub, cache_pb2_grpc.CacheServiceStub(beside), model, rounds)
            await channel.close()
            await beside.close()
        finally:
            await asyncio.to_thread(mesh.close)
    lines = [
        "| through the router | ms to its first event p50 / p99 | to its first token p50 / p99 | of |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {_both([event for event, _ in each])} | {_both([token for _, token in each])} | {len(each)} |"
        for name, each in times.items()
    ]
    event, token = (
        [percentile([each[which] for each in times[name]], 0.5) for name in ("exact, missed", "off")]
        for which in (0, 1)
    )
    missed = percentile([each[1] for each in times["semantic, missed"]], 0.5)
    said = f"An exact lookup that misses adds {event[0] - event[1]:.2f} ms at the median,"
    said += f" a semantic one beside the dispatch {missed - token[1]:.2f} ms to the first token."
    return [*lines, "", said]


def _both(times: list[float]) -> str:
    return f"{percentile(times, 0.5):.2f} / {percentile(times, 0.99):.2f}"


def _plain(value: Any) -> str:
    return json.dumps(value) if isinstance(value, tuple) else str(value)


async def _asked(stub: Any, request: Any) -> tuple[str, tuple[float, float]]:
    """What the cache did, and milliseconds until the first event and the first token."""
    began, event_ms, token_ms, heard = time.perf_counter(), 0.0, 0.0, Heard()
    async for batch in stub.Generate(router_pb2.GenerateRequest(request=request)):
        now_ms = (time.perf_counter() - began) * 1000
        heard.hear(batch.events)
        event_ms = event_ms or now_ms
        if not token_ms and any(event.HasField("token") for event in batch.events):
            token_ms = now_ms
    return dict(heard.trailers)["x-streamway-cache"], (event_ms, token_ms)


async def _rounds(stub: Any, cache: Any, model: str, rounds: int) -> dict[str, list[tuple[float, float]]]:
    pairs = questions()[:rounds]
    times: dict[str, list[tuple[float, float]]] = {}
    for asked, _ in pairs:
        request = asks(asked, common_pb2.CACHE_POLICY_SEMANTIC, model)
        await cache.Store(cache_pb2.StoreRequest(request=request, events=answer("It is easy.")))
        await asyncio.sleep(0.03)
    # What is stored is found by likeness a moment later.
    await asyncio.sleep(1)
    for number, (asked, other) in enumerate(pairs):
        for name, text, policy, expected in (
            ("off", f"{asked} {number}", common_pb2.CACHE_POLICY_OFF, "off"),
            ("exact, missed", f"{asked} {number} exact", common_pb2.CACHE_POLICY_EXACT, "miss"),
            ("exact, hit", asked, common_pb2.CACHE_POLICY_EXACT, "exact"),
            ("semantic, hit", other, common_pb2.CACHE_POLICY_SEMANTIC, "semantic"),
            ("semantic, missed", f"Who painted picture {number}?", common_pb2.CACHE_POLICY_SEMANTIC, "miss"),
        ):
            state, took = await _asked(stub, asks(text, policy, model))
            if state == expected:
                times.setdefault(name, []).append(took)
            await asyncio.sleep(0.01)
    return times
