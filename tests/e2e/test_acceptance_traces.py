"""One generation is one trace, from the client's frame to the engine: a real mesh that exports to a receiver on loopback."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import grpc.aio
import pytest

from streamway.runtime.ids import new_generation_id
from streamway.telemetry.context import begin
from streamway.telemetry.engine_calls import span_of_call
from streamway.v1 import common_pb2, router_pb2, router_pb2_grpc
from tests.support.clients import Frames, frames, text_of
from tests.support.mesh import ENDS_SOON, MeshProcesses
from tests.support.otlp_receiver import Receiver, Span

pytestmark = pytest.mark.timeout(180)
_SERVER, _CLIENT, _PRODUCER, _CONSUMER = 2, 3, 4, 5
CANCELLED = 10_000 if os.environ.get("FULL") == "1" else 300


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture(scope="module")
def traced(receiver: Receiver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshProcesses]:
    """Two workers and two edges, and every trace recorded. A cache that is slow once, on a busy machine, has answered too."""
    folder = tmp_path_factory.mktemp("traced")
    arguments = ("--workers", "2", "--edges", "2")
    environment = {**ENDS_SOON, **receiver.environment, "STREAMWAY_ROUTER_CACHE_BUDGET_MS": "1000"}
    mesh = MeshProcesses(folder, arguments=arguments, environment=environment, start_s=240)
    yield mesh
    mesh.close()


def ask(prompt: str, tokens: int | None = 5, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": prompt}]
    params = {"temperature": 0.0, **({"max_tokens": tokens} if tokens is not None else {})}
    return {"model": "simulated", "messages": messages, "params": params, **fields}


def named(spans: list[Span], service: str, name: str) -> Span:
    (found,) = [span for span in spans if (span.service, span.name) == (service, name)]
    return found


async def answered(client: Frames, id_: str, prompt: str, **fields: Any) -> list[dict[str, Any]]:
    await client.send(type="open", id=id_, **ask(prompt, **fields))
    return await client.until("finished", id_)


async def test_k3_a_websocket_generation_is_one_tree_from_the_edge_to_the_engine_with_the_cache_lookup(
    traced: MeshProcesses, receiver: Receiver
) -> None:
    async with frames(traced.websocket_url) as client:
        # Only what ends by itself is kept.
        seen = await answered(client, "1", "one tree", tokens=None)
        async with asyncio.timeout(30):  # the answer is stored behind its end
            while (again := await answered(client, "2", "one tree", tokens=None))[0]["cache"] != "exact":
                await asyncio.sleep(0.2)
    accepted, generation = seen[0], seen[0]["generation"]
    spans = await receiver.until(lambda: len(found := receiver.of(generation)) >= 6 and found)
    edge = named(spans, "edge", "chat simulated")
    router, lookup = named(spans, "router", "streamway.open"), named(spans, "router", "cache.lookup")
    cache = named(spans, "cache", "cache.keyed")
    task, call = named(spans, "adapter", "process simulated"), named(spans, "adapter", "chat simulated")
    # One root, and each inside the one that asked for it.
    assert {span.trace for span in spans} == {edge.trace}
    assert [edge.parent, router.parent, lookup.parent] == ["", edge.id, router.id]
    assert [cache.parent, task.parent, call.parent] == [lookup.id, router.id, task.id]
    assert [span.kind for span in (edge, router, lookup, cache, task, call)] == [
        *(_SERVER, _PRODUCER, _CLIENT, _SERVER, _CONSUMER, _CLIENT)
    ]
    # The client was told which trace, by the id of the edge's span.
    assert accepted["traceparent"] == f"00-{edge.trace}-{edge.id}-01"
    for span in (edge, task, call):
        assert "first_token" in span.events
        assert span.events[-1] == "terminal"
        assert span.facts["streamway.outcome"] == "finished"
        assert not span.failed
    assert edge.facts["gen_ai.usage.output_tokens"] == call.facts["gen_ai.usage.output_tokens"] > 5
    assert (edge.facts["gen_ai.operation.name"], call.facts["gen_ai.provider.name"]) == ("chat", "simulated")
    assert edge.facts["streamway.worker"] == router.facts["streamway.worker"]
    assert lookup.facts["streamway.cache.outcome"] == cache.facts["streamway.cache.outcome"] == "miss"
    # A hit is a tree of its own without a worker, on the same connection.
    hit = await receiver.until(lambda: len(found := receiver.of(again[0]["generation"])) >= 4 and found)
    assert {span.service for span in hit} == {"edge", "router", "cache"}
    assert hit[0].trace != edge.trace
    assert named(hit, "router", "cache.lookup").facts["streamway.cache.outcome"] == "hit_exact"
    # What a span says has no text of the client's or the model's.
    assert "one tree" not in str(spans)
    assert text_of(seen) not in str(spans)


async def test_k3_a_resume_links_to_the_trace_that_it_goes_on_with(traced: MeshProcesses, receiver: Receiver) -> None:
    async with frames(traced.websocket_url) as client:
        await client.send(type="open", id="1", **ask("come back later", 200, cache="off"))
        seen = await client.until("token")
    generation, cursor = seen[0]["generation"], f"{seen[1]['epoch']}-{seen[-1]['position']}"
    sender = begin(sampled=1.0)
    headers = {"traceparent": sender.traceparent}
    async with frames(traced.websocket_url, additional_headers=headers) as client:
        await client.send(type="resume", id="1", generation=generation, after=cursor)
        await client.until("finished", "1")
    spans = await receiver.until(lambda: len(found := receiver.of(generation)) >= 5 and found)
    first, resumed = named(spans, "edge", "chat simulated"), named(spans, "edge", "streamway.resume")
    assert first.facts["streamway.outcome"] == "left"
    assert (resumed.trace, resumed.parent) == (sender.trace_id, sender.span_id)
    assert resumed.links == ((first.trace, named(spans, "router", "streamway.open").id),)
    assert resumed.events[0] == "recovered"


async def test_k3_who_takes_over_goes_on_in_the_trace_and_links_to_the_call_it_continues(
    traced: MeshProcesses, receiver: Receiver
) -> None:
    async with frames(traced.websocket_url) as client:
        await client.send(type="open", id="1", **ask("survive", 600, cache="off"))
        seen = await client.until("token")
        started = next(frame for frame in seen if frame["type"] == "started")
        pid = traced.kill(started["worker"])
        await client.until("finished", "1", 60)
    await traced.restarted(started["worker"], pid)
    generation = seen[0]["generation"]
    # The dead worker has sent nothing; the other one knows what its call was called. On a busy machine one may take the task
    # and give it away again, which makes more spans.
    wanted = {("edge", "chat simulated"), ("adapter", "process simulated"), ("adapter", "chat simulated")}

    def told() -> list[Span]:
        spans = receiver.of(generation)
        ended = {(span.service, span.name) for span in spans if span.facts.get("streamway.outcome") == "finished"}
        return spans if wanted <= ended else []

    spans = await receiver.until(told)
    edge = named(spans, "edge", "chat simulated")
    over = [span for span in spans if span.facts.get("streamway.outcome") == "finished"]
    task, call = named(over, "adapter", "process simulated"), named(over, "adapter", "chat simulated")
    assert {span.trace for span in spans} == {edge.trace}
    assert call.links == ((edge.trace, span_of_call(generation, started["epoch"])),)
    assert call.facts["streamway.continues"] is True
    assert task.facts["streamway.from_worker"] == started["worker"]
    assert {"taken_over", "first_token"} <= {*edge.events, *task.events}


async def test_k3_what_is_cancelled_or_refused_ends_its_spans_and_makes_no_noise(
    traced: MeshProcesses, receiver: Receiver
) -> None:
    quiet = len(traced.log())
    cancelled: list[str] = []
    async with frames(traced.websocket_url) as client:
        for start in range(0, CANCELLED, 50):
            names = [str(number) for number in range(start, start + 50)]
            for name in names:
                await client.send(type="open", id=name, **ask(f"cancel {name}", 500, cache="off"))
            for name in names:
                await client.send(type="cancel", id=name)
            left = set(names)
            while left:
                frame = await client.receive()
                if frame["type"] == "accepted":
                    cancelled.append(frame["generation"])
                if frame["type"] in ("error", "finished"):
                    assert frame.get("reason", "cancelled") == "cancelled"
                    left.discard(frame["id"])
        await client.send(type="open", id="no", **ask("refused") | {"model": "nobody-serves-it"})
        refused = (await client.until("error", "no"))[-1]
    assert refused["reason"] == "model_not_found"
    await receiver.until(lambda: any(span.facts.get("error.type") == "model_not_found" for span in receiver.spans))

    def ended() -> bool:
        told = [span for span in receiver.spans if span.facts.get("streamway.outcome") == "cancelled"]
        return len({span.facts["gen_ai.response.id"] for span in told if span.service == "edge"}) >= CANCELLED

    await receiver.until(ended, 60)
    for process in ("edge-0", "edge-1", "router-0", "adapter-0", "adapter-1", "cache-0"):
        async with asyncio.timeout(30):
            while sum(await ages(traced, process)):
                await asyncio.sleep(0.1)
    noise = [line for line in traced.log()[quiet:].splitlines() if "error" in line.lower() or "Traceback" in line]
    assert noise == []

    def orphans() -> list[str]:
        known = {span.id for span in receiver.spans}
        theirs = [span for generation in cancelled for span in receiver.of(generation)]
        return [f"{span.service} {span.name}" for span in theirs if span.parent and span.parent not in known]

    # No span of theirs has a parent that is never exported. Each process sends its own in batches, so a child may come first.
    try:
        await receiver.until(lambda: not orphans())
    except TimeoutError:
        assert orphans() == []


async def ages(mesh: MeshProcesses, process: str) -> list[int]:
    shown = await mesh.metrics(process)
    return [
        int(float(line.rsplit(" ", 1)[1]))
        for line in shown.splitlines()
        if line.startswith("streamway_inflight_generations{")
    ]


async def test_k3_a_grpc_client_that_leaves_in_the_middle_ends_every_span(
    traced: MeshProcesses, receiver: Receiver
) -> None:
    sender = begin(sampled=1.0)
    async with grpc.aio.insecure_channel(traced.address("router-0")) as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        await stub.ListModels(router_pb2.ListModelsRequest(), metadata=(("traceparent", sender.traceparent),))
        wanted = common_pb2.GenerationRequest(
            generation=new_generation_id(), model="simulated", on_disconnect=common_pb2.ON_DISCONNECT_CANCEL
        )
        wanted.messages.add(role="user", content="left alone")
        wanted.limits.max_tokens = 2000
        call = stub.Generate(
            router_pb2.GenerateRequest(request=wanted), metadata=(("traceparent", sender.traceparent),)
        )
        async for response in call:
            if any(event.HasField("token") for event in response.events):
                break
        call.cancel()
    spans = await receiver.until(lambda: len(found := receiver.of(wanted.generation)) >= 3 and found)
    rpc = await receiver.until(
        lambda: [span for span in receiver.spans if span.name.endswith("/Generate") and span.trace == sender.trace_id]
    )
    assert {span.trace for span in spans} == {sender.trace_id}
    assert rpc[0].parent == sender.span_id
    assert named(spans, "router", "streamway.open").parent == rpc[0].id
    assert named(spans, "adapter", "chat simulated").facts["streamway.outcome"] == "cancelled"
    assert any(span.name.endswith("/ListModels") and span.trace == sender.trace_id for span in receiver.spans)


async def finished(mesh: MeshProcesses, edge: str) -> int:
    """What one edge says it has brought to a good end."""
    return sum(
        int(float(line.rsplit(" ", 1)[1]))
        for line in (await mesh.metrics(edge)).splitlines()
        if line.startswith("streamway_edge_generations_total{") and 'outcome="finished"' in line
    )


async def test_k4_counters_of_several_edges_add_up_and_a_restart_begins_at_zero(traced: MeshProcesses) -> None:
    edges = ("edge-0", "edge-1")

    async def run(connections: int) -> int:
        """Generations over as many connections, which the edges share; how many ended."""

        async def one(number: int) -> None:
            async with frames(traced.websocket_url) as client:
                for name in ("a", "b", "c"):
                    await answered(client, name, f"count {number} {name}")

        async with asyncio.TaskGroup() as group:
            for number in range(connections):
                group.create_task(one(number))
        return connections * 3

    before = {edge: await finished(traced, edge) for edge in edges}
    ran = await run(10)
    after = {edge: await finished(traced, edge) for edge in edges}
    assert sum(after.values()) - sum(before.values()) == ran
    assert all(after[edge] > before[edge] for edge in edges)
    pid = traced.kill("edge-1")
    await traced.restarted("edge-1", pid)
    # As increase() reads it: a counter that has become smaller began anew.
    assert await finished(traced, "edge-1") == 0
    ran = await run(10)
    again = {edge: await finished(traced, edge) for edge in edges}
    assert again["edge-0"] - after["edge-0"] + again["edge-1"] == ran
    shown = await traced.metrics("edge-1")
    assert "streamway_edge_ttft_seconds_count" in shown


async def test_a_metrics_value_leads_to_the_trace_it_came_from(traced: MeshProcesses, receiver: Receiver) -> None:
    async with frames(traced.websocket_url) as client:
        seen = await answered(client, "1", "an exemplar")
    trace = seen[0]["traceparent"].split("-")[1]
    for process in ("edge-0", "edge-1"):
        shown = await traced.metrics(process, accept="application/openmetrics-text; version=1.0.0")
        if f'trace_id="{trace}"' in shown:
            break
    line = next(line for line in shown.splitlines() if trace in line)
    assert line.startswith("streamway_edge_ttft_seconds_bucket")
    assert shown.endswith("# EOF\n")
    worker = seen[0]["worker"]
    shown = await traced.metrics(worker, accept="application/openmetrics-text; version=1.0.0")
    assert any(
        line.startswith("streamway_llm_inference_duration_seconds_bucket") and trace in line
        for line in shown.splitlines()
    )
