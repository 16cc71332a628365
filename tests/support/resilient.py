"""Clients that come back: they hold a cursor, and go on from it whatever broke. They know only the wire."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import grpc.aio
import websockets

from streamway.v1 import common_pb2, router_pb2, router_pb2_grpc
from tests.support.mesh import MeshProcesses

_PATIENCE_S: Final = 60.0


@dataclass
class Told:
    """What a client was told of one generation, checked as it comes: each position once, in order, one end."""

    generation: str = ""
    text: str = ""
    units: int = 0
    position: int = 0
    epoch: int = 0
    worker: str = ""
    workers: list[str] = field(default_factory=list)
    usage: dict[str, int] | None = None
    over: bool = False
    breaks: int = 0
    repeated: int = 0
    problem: str = ""

    @property
    def cursor(self) -> str:
        return f"{self.epoch}-{self.position}"

    def take(self, kind: str, first: int, last: int, epoch: int = 0) -> bool:
        """Books a position; False for one that was there already."""
        if not last:
            return True
        if last <= self.position:
            self.repeated += 1
            return False
        assert first == self.position + 1, f"position {first} came where {self.position + 1} was due ({kind})"
        assert not self.over, f"{kind} came after the end"
        self.position = last
        if epoch:
            self.epoch = epoch
        return True

    def frame(self, frame: dict[str, Any]) -> None:
        """One JSON frame, from a WebSocket, SSE or long poll."""
        kind = frame["type"]
        if kind == "resumed":
            assert frame["recovered"] is True, frame
            return
        last = frame.get("position", 0)
        if not self.take(kind, frame.get("first_position", last), last, frame.get("epoch", 0)):
            return
        if kind == "accepted":
            self.generation = frame["generation"]
        elif kind in ("started", "taken_over"):
            self.began(frame["worker"])
        elif kind == "token":
            self.text += frame["text"]
            self.units += frame["position"] - frame.get("first_position", frame["position"]) + 1
        elif kind == "finished":
            self.usage = frame["usage"]
            self.over = True
        elif kind == "error":
            self.failed(frame)

    def event(self, event: common_pb2.Event) -> None:
        """One protobuf event."""
        kind = event.WhichOneof("event")
        if kind == "resumed":
            assert event.resumed.recovered, event
            return
        if not self.take(str(kind), event.first_position or event.position, event.position, event.epoch):
            return
        if kind == "accepted":
            self.generation = event.generation
        elif kind == "started":
            self.began(event.started.worker)
        elif kind == "taken_over":
            self.began(event.taken_over.worker)
        elif kind == "token":
            self.text += event.token.text
            self.units += event.token.units or 1
        elif kind == "finished":
            self.usage = {"completion_tokens": event.finished.usage.completion_tokens}
            self.over = True
        elif kind == "error":
            self.failed({"message": event.error.status.message})

    def began(self, worker: str) -> None:
        """An engine call has begun."""
        self.worker = worker
        self.workers.append(worker)

    def failed(self, what: dict[str, Any]) -> None:
        """The generation, or this way of reading it, ended badly."""
        if what.get("reason") in ("going_away", "router_unavailable", "no_workers") and what.get("position") is None:
            self.breaks += 1
            raise ConnectionResetError(what["reason"])
        self.problem = str(what)
        self.over = True


Watch = Callable[[Told], None]


async def over_websocket(mesh: MeshProcesses, prompt: str, most: int, watch: Watch, key: str) -> Told:
    """One generation over WebSockets, resumed at whatever edge answers. `key` makes opening it twice harmless."""
    told, until = Told(), time.monotonic() + _PATIENCE_S
    while not told.over:
        assert time.monotonic() < until, f"not over after {_PATIENCE_S} s: {told}"
        try:
            protocol = websockets.Subprotocol("streamway.v1.json")
            async with websockets.connect(mesh.websocket_url, subprotocols=[protocol], open_timeout=5) as socket:
                await socket.recv()
                if told.generation:
                    opening = {"type": "resume", "id": "x", "generation": told.generation, "after": told.cursor}
                else:
                    opening = {
                        "type": "open",
                        "id": "x",
                        "model": "simulated",
                        "messages": [{"role": "user", "content": prompt}],
                        "params": {"max_tokens": most, "seed": 5},
                        "cache": "off",
                        "idempotency_key": key,
                    }
                await socket.send(json.dumps(opening))
                while not told.over:
                    told.frame(json.loads(await asyncio.wait_for(socket.recv(), _PATIENCE_S)))
                    watch(told)
        except (OSError, websockets.WebSocketException):
            told.breaks += 1
            await asyncio.sleep(0.1)
    return told


async def over_sse(mesh: MeshProcesses, prompt: str, most: int, watch: Watch, key: str) -> Told:
    """One background generation, read as server-sent events with `Last-Event-ID`."""
    told, until = Told(), time.monotonic() + _PATIENCE_S
    opening = {
        "model": "simulated",
        "messages": [{"role": "user", "content": prompt}],
        "params": {"max_tokens": most, "seed": 5},
        "cache": "off",
        "idempotency_key": key,
    }
    generation, last_id = "", ""
    while not told.over:
        assert time.monotonic() < until, f"not over after {_PATIENCE_S} s: {told}"
        try:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
            async with aiohttp.ClientSession(timeout=timeout) as session:
                if not generation:
                    async with session.post(f"{mesh.edge_url}/v1/generations", json=opening) as response:
                        if response.status != 202:
                            raise ConnectionResetError(await response.text())
                        generation = (await response.json())["generation"]
                headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last_id} if last_id else {})}
                address = f"{mesh.edge_url}/v1/generations/{generation}/events"
                async with session.get(address, headers=headers) as response:
                    if response.status == 204:
                        return told
                    if response.status != 200:
                        raise ConnectionResetError(await response.text())
                    async for line in response.content:
                        if line.startswith(b"id: "):
                            last_id = line[4:].strip().decode()
                        elif line.startswith(b"data: "):
                            told.frame(json.loads(line[6:]))
                            watch(told)
        except (OSError, aiohttp.ClientError):
            told.breaks += 1
            await asyncio.sleep(0.1)
    return told


async def over_grpc(mesh: MeshProcesses, prompt: str, most: int, watch: Watch, key: str) -> Told:
    """One generation over the router's `Generate`, gone on with by `Resume`."""
    told, until = Told(), time.monotonic() + _PATIENCE_S
    request = common_pb2.GenerationRequest(
        model="simulated",
        messages=[common_pb2.Message(role="user", content=prompt)],
        sampling=common_pb2.Sampling(seed=5),
        limits=common_pb2.Limits(max_tokens=most),
        cache=common_pb2.CACHE_POLICY_OFF,
        idempotency_key=key,
    )
    while not told.over:
        assert time.monotonic() < until, f"not over after {_PATIENCE_S} s: {told}"
        try:
            async with grpc.aio.insecure_channel(mesh.address("router-0")) as channel:
                stub = router_pb2_grpc.RouterServiceStub(channel)
                call = (
                    stub.Resume(router_pb2.ResumeRequest(generation=told.generation, cursor=told.cursor))
                    if told.generation
                    else stub.Generate(router_pb2.GenerateRequest(request=request))
                )
                async for response in call:
                    for event in response.events:
                        told.event(event)
                        watch(told)
        except (grpc.aio.AioRpcError, ConnectionResetError):
            told.breaks += 1
            await asyncio.sleep(0.2)
    return told


SURFACES: Final = {"websocket": over_websocket, "sse": over_sse, "grpc": over_grpc}
