"""The grpc instrumentation on our servers: every kind of call, ended and cancelled."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from streamway.telemetry.context import begin
from streamway.telemetry.tracing import server_interceptors

CANCELLED = 10_000 if os.environ.get("FULL") == "1" else 500
TOGETHER = 100


async def one(request: bytes, context: Any) -> bytes:
    return request


async def out(request: bytes, context: Any) -> AsyncIterator[bytes]:
    for _ in range(3):
        yield request
    if request == b"endless":
        await asyncio.Event().wait()


async def inward(requests: AsyncIterator[bytes], context: Any) -> bytes:
    return b"".join([request async for request in requests])


async def both(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request


async def test_k3_every_kind_of_call_is_traced_and_a_cancelled_one_ends_its_span(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    server = grpc.aio.server(interceptors=server_interceptors(provider))
    handlers = {
        "One": grpc.unary_unary_rpc_method_handler(one),
        "Out": grpc.unary_stream_rpc_method_handler(out),
        "Inward": grpc.stream_unary_rpc_method_handler(inward),
        "Both": grpc.stream_stream_rpc_method_handler(both),
        # As Connect, Attach and Exchange are called: they live as long as their peers.
        "Connect": grpc.stream_stream_rpc_method_handler(both),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("streamway.test.Kinds", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sender = begin(sampled=1.0)
    metadata = (("traceparent", sender.traceparent),)
    caplog.set_level(logging.INFO)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:

        def method(kind: str, name: str) -> Any:
            return getattr(channel, kind)(f"/streamway.test.Kinds/{name}")

        async def cancelled() -> None:
            call = method("unary_stream", "Out")(b"endless", metadata=metadata)
            await call.read()
            call.cancel()

        assert await method("unary_unary", "One")(b"a", metadata=metadata) == b"a"
        assert [each async for each in method("unary_stream", "Out")(b"a", metadata=metadata)] == [b"a"] * 3
        assert await method("stream_unary", "Inward")(iter([b"a", b"b"]), metadata=metadata) == b"ab"
        for name in ("Both", "Connect"):
            call = method("stream_stream", name)(iter([b"a", b"b"]), metadata=metadata)
            assert [each async for each in call] == [b"a", b"b"]
        for _ in range(0, CANCELLED, TOGETHER):
            async with asyncio.TaskGroup() as group:
                for _ in range(TOGETHER):
                    group.create_task(cancelled())
        async with asyncio.timeout(60):
            while len(exporter.get_finished_spans()) < CANCELLED + 4:
                await asyncio.sleep(0.05)
    await server.stop(0)
    spans = exporter.get_finished_spans()
    assert len(spans) == CANCELLED + 4
    assert {span.name.rpartition("/")[2] for span in spans} == {"One", "Out", "Inward", "Both"}
    assert {f"{span.context.trace_id:032x}" for span in spans} == {sender.trace_id}
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
