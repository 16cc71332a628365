"""Many generations on one gRPC `Connect` stream of a router, all events relayed on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc.aio

from benchmarks.clients.plan import Plan, Record, Tally, now
from streamway.rpc.options import client_options
from streamway.runtime.ids import new_generation_id
from streamway.v1 import common_pb2, router_pb2, router_pb2_grpc


async def run(plan: Plan, tally: Tally) -> None:
    """Runs the whole plan against the router at `plan.target` ("host:port")."""
    commands: asyncio.Queue[router_pb2.ConnectCommand | None] = asyncio.Queue()
    live: dict[str, tuple[int, int, Record]] = {}
    left = plan.streams

    async def requests() -> AsyncIterator[router_pb2.ConnectRequest]:
        while (command := await commands.get()) is not None:
            batch = [command]
            while not commands.empty() and len(batch) < 500 and (more := commands.get_nowait()) is not None:
                batch.append(more)
            yield router_pb2.ConnectRequest(commands=batch)

    def ask(stream: int, turn: int) -> None:
        request = common_pb2.GenerationRequest(
            generation=new_generation_id(),
            model=plan.model,
            messages=[common_pb2.Message(role="user", content=plan.prompt(stream, turn))],
            limits=common_pb2.Limits(max_tokens=plan.tokens),
            durability=common_pb2.Durability.Value(f"DURABILITY_{plan.durability.upper()}"),
        )
        record = Record(now())
        tally.records.append(record)
        live[request.generation] = (stream, turn, record)
        commands.put_nowait(
            router_pb2.ConnectCommand(open=router_pb2.Open(request=request, delivery=router_pb2.DELIVERY_EVENTS))
        )

    def settle(event: common_pb2.Event) -> int:
        """Books one event; 1 when its stream has asked all its rounds."""
        found = live.get(event.generation)
        kind = event.WhichOneof("event")
        if found is None or kind not in ("token", "finished", "error"):
            return 0
        stream, turn, record = found
        if kind == "token":
            tally.token(record, now(), event.token.units)
            return 0
        del live[event.generation]
        if kind == "finished":
            tally.finished += 1
            tally.tokens += event.finished.usage.completion_tokens
        else:
            tally.error(event.error.status.message[:60])
        if turn + 1 < plan.rounds:
            ask(stream, turn + 1)
            return 0
        return 1

    async def start() -> None:
        for stream in range(plan.streams):
            ask(stream, 0)
            await asyncio.sleep(plan.ramp_s / plan.streams)

    metadata = [("authorization", f"Bearer {plan.api_key}")] if plan.api_key else []
    async with (
        grpc.aio.insecure_channel(plan.target, options=client_options(32 * 1024 * 1024)) as channel,
        asyncio.TaskGroup() as group,
    ):
        starting = group.create_task(start())
        call = router_pb2_grpc.RouterServiceStub(channel).Connect(requests(), metadata=metadata)
        try:
            async for response in call:
                for event in response.events:
                    left -= settle(event)
                if left == 0:
                    commands.put_nowait(None)
                    call.cancel()
                    return
        except grpc.aio.AioRpcError as problem:
            # What has not ended by then is lost with the call.
            tally.error(problem.details() or problem.code().name)
            starting.cancel()
