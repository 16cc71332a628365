"""Request context, logs, the operations port and traces."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import textwrap

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import choose_encoder

from streamway.runtime.process import StartError
from streamway.telemetry import tracing
from streamway.telemetry.context import begin, current
from streamway.telemetry.hops import Hops
from streamway.telemetry.operations import OperationsServer, encoded
from tests.support.ports import free_port

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_context_goes_on_with_the_senders_trace() -> None:
    context = begin(PARENT, generation="g", tenant="t")
    assert context.trace_id == "0af7651916cd43dd8448eb211c80319c"
    assert context.span_id != "b7ad6b7169203331"
    assert context.sampled
    assert begin(context.traceparent).trace_id == context.trace_id
    assert context.hop().span_id != context.span_id
    assert current.get() is None


@pytest.mark.parametrize(
    "traceparent", ["", "x", PARENT.upper(), f"00-{'0' * 32}-b7ad6b7169203331-01", f"{PARENT}-more", f"ff{PARENT[2:]}"]
)
def test_what_is_not_w3c_begins_a_new_trace(traceparent: str) -> None:
    context = begin(traceparent)
    assert context.trace_id not in traceparent
    assert not context.sampled


LOG_PROGRAM = """
import logging, structlog
from streamway.telemetry import context
from streamway.telemetry.logging import configure
configure("edge", "info", {style!r})
context.current.set(context.begin(generation="g-1"))
structlog.get_logger("edge").info("opened", bytes=3)
logging.getLogger("other").warning("from %s", "elsewhere")
structlog.get_logger("edge").debug("hidden")
try:
    prompt = "a secret prompt"
    1 / 0
except ZeroDivisionError:
    structlog.get_logger("edge").exception("failed")
"""


@pytest.mark.parametrize("style", ["json", "console"])
def test_a_log_line_has_its_generation_and_never_local_variables(style: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LOG_PROGRAM).format(style=style)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "hidden" not in done.stderr
    assert "a secret prompt'" not in done.stderr
    assert "ZeroDivisionError" in done.stderr
    if style == "json":
        first, second, third = map(json.loads, done.stderr.splitlines())
        assert (first["event"], first["service"], first["generation"], first["bytes"]) == ("opened", "edge", "g-1", 3)
        assert (second["event"], second["level"], second["generation"]) == ("from elsewhere", "warning", "g-1")
        assert len(third["trace"]) == 32


async def test_the_operations_port_tells_health_readiness_and_metrics() -> None:
    registry = CollectorRegistry()
    Counter("streamway_things", "Things.", registry=registry).inc(3)
    waiting = ["for a router"]
    server = OperationsServer("127.0.0.1", 0, registry, lambda: waiting[0])
    await server.start()
    try:
        assert not server.address.endswith(":0")
        async with aiohttp.ClientSession(f"http://{server.address}") as client:
            async with client.get("/healthz") as answer:
                assert answer.status == 200
            async with client.get("/readyz") as answer:
                assert (answer.status, await answer.text()) == (503, "for a router\n")
            waiting[0] = ""
            async with client.get("/readyz") as answer:
                assert (answer.status, await answer.text()) == (200, "ready\n")
            async with client.get("/metrics") as answer:
                assert answer.headers["Content-Type"].startswith("text/plain")
                assert "streamway_things_total 3.0" in await answer.text()
    finally:
        await server.close()


@pytest.mark.parametrize("accept", ["application/openmetrics-text;version=1.0.0", "text/plain;version=1.0.0", ""])
async def test_k4_others_go_on_while_many_metrics_are_written(accept: str) -> None:
    registry = CollectorRegistry()
    for number in range(40):
        histogram = Histogram(f"waits_{number}", "Of readers.", ["surface"], registry=registry)
        for surface in range(20):
            histogram.labels(f"s{surface}").observe(number / 10, {"trace_id": "ab"} if surface % 2 else None)
    Counter("asked", "Requests.", registry=registry).inc(3)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    encoder, _ = choose_encoder(accept)
    beside = asyncio.get_running_loop().create_task(others())
    body = await encoded(registry, encoder)
    beside.cancel()
    assert body == encoder(registry)
    assert turns >= 10


async def test_a_taken_operations_port_stops_the_start() -> None:
    port = free_port()
    first = OperationsServer("127.0.0.1", port, CollectorRegistry(), lambda: "")
    await first.start()
    try:
        with pytest.raises(StartError, match="is not free"):
            await OperationsServer("127.0.0.1", port, CollectorRegistry(), lambda: "").start()
    finally:
        await first.close()


def test_traces_cost_nothing_when_they_are_off() -> None:
    assert tracing.configure("edge", enabled=False) is None
    assert tracing.server_interceptors(None) == []
    assert logging.getLogger().level is not None


async def test_the_operations_port_shows_what_was_done_for_a_generation() -> None:
    hops = Hops("edge", "edge-0")
    server = OperationsServer("127.0.0.1", 0, CollectorRegistry(), lambda: "", hops)
    await server.start()
    try:
        hop = hops.begin("chat m", hops.context(), "g", facts={"streamway.surface": "sse"})
        hop.mark("first_token")
        async with aiohttp.ClientSession(f"http://{server.address}") as client:
            async with client.get("/debug/generations/g") as answer:
                (row,) = (await answer.json())["hops"]
            async with client.get("/debug/generations") as answer:
                newest = (await answer.json())["hops"]
            async with client.get("/debug/generations/unknown") as answer:
                assert (await answer.json()) == {"hops": []}
    finally:
        await server.close()
    assert newest == [row]
    assert (row["process"], row["name"], row["outcome"], row["ended_ms"]) == ("edge-0", "chat m", "", 0)
    assert row["marks"][0][0] == "first_token"
    assert row["facts"] == {"streamway.surface": "sse"}
