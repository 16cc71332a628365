"""Clients that come back: each holds its cursor and goes on from it, at whatever edge or router answers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import aiohttp
import grpc.aio

from services.supervisor.core.account import Account, ComeAgain
from services.supervisor.core.rounds import Surface
from streamway.config import SharedSettings
from streamway.errors import from_rpc_error
from streamway.rpc import open_channel, own_call
from streamway.v1 import common_pb2, router_pb2, router_pb2_grpc

# A stream that has not ended after this long is given up.
PATIENCE_S: Final = 60.0
_CONNECT_S: Final = 5.0
_FIRST_WAIT_S: Final = 0.05
_MOST_WAIT_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Question:
    """What a client asks. With a `key` asking twice is harmless; the store must be there for it."""

    model: str
    prompt: str
    tokens: int
    seed: int
    durability: str
    key: str = ""

    def body(self) -> dict[str, Any]:
        """The fields of the edge's `open`."""
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": self.prompt}],
            "params": {"max_tokens": self.tokens, "seed": self.seed},
            "cache": "off",
            "durability": self.durability,
        }
        return {**body, "idempotency_key": self.key} if self.key else body

    def request(self) -> common_pb2.GenerationRequest:
        """The same for gRPC."""
        return common_pb2.GenerationRequest(
            model=self.model,
            messages=[common_pb2.Message(role="user", content=self.prompt)],
            sampling=common_pb2.Sampling(seed=self.seed),
            limits=common_pb2.Limits(max_tokens=self.tokens),
            cache=common_pb2.CACHE_POLICY_OFF,
            durability=common_pb2.Durability.Value(f"DURABILITY_{self.durability.upper()}"),
            idempotency_key=self.key,
        )


class Doors(Protocol):
    """Where clients come in."""

    @property
    def edge_url(self) -> str:
        """Of all edges."""
        ...

    @property
    def credentials(self) -> Mapping[str, str]:
        """Headers that let a client in."""
        ...

    def router(self, number: int) -> tuple[str, str]:
        """Name and address of a router; numbers beyond the last begin anew."""
        ...

    def edge_behind(self, connection: Any) -> str:
        """Name of the edge that a transport is connected to; empty where that can't be told."""
        ...


Changed = Callable[[Account], None]


async def ask(surface: Surface, number: int, doors: Doors, question: Question, account: Account, on: Changed) -> None:
    """One generation from its beginning to its end, whatever breaks. `on` is called after all that is told.

    The account says how it went; nothing is raised.
    """
    attempt = {"websocket": _websocket, "sse": _sse}.get(surface)
    wait_s, attempts = _FIRST_WAIT_S, number
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                before = account.position
                try:
                    if attempt is not None:
                        await attempt(doors, question, account, on)
                    else:
                        await _grpc(attempts, doors, question, account, on)
                except ComeAgain:
                    pass
                except (OSError, aiohttp.ClientError, grpc.aio.AioRpcError, asyncio.IncompleteReadError, ValueError):
                    account.broke()
                if account.over:
                    return
                attempts += 1
                wait_s = _FIRST_WAIT_S if account.position > before else min(_MOST_WAIT_S, wait_s * 2)
                await asyncio.sleep(wait_s)
    except TimeoutError:
        account.give_up(f"not over after {PATIENCE_S:g} s")


async def _websocket(doors: Doors, question: Question, account: Account, on: Changed) -> None:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
    async with (
        aiohttp.ClientSession(timeout=timeout, headers=doors.credentials) as session,
        session.ws_connect(f"{doors.edge_url}/v1/stream", protocols=["streamway.v1.json"]) as socket,
    ):
        account.through = doors.edge_behind(socket.get_extra_info("sockname"))
        if account.generation:
            opening = {"type": "resume", "generation": account.generation, "after": account.cursor}
        else:
            opening = {"type": "open", **question.body()}
        await socket.send_json({"id": "x", **opening})
        while not account.over:
            message = await socket.receive()
            if message.type is not aiohttp.WSMsgType.TEXT:
                raise ConnectionResetError("the connection ended")
            account.frame(json.loads(message.data), time.monotonic())
            on(account)


async def _sse(doors: Doors, question: Question, account: Account, on: Changed) -> None:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
    async with aiohttp.ClientSession(timeout=timeout, headers=doors.credentials) as session:
        if not account.generation:
            async with session.post(f"{doors.edge_url}/v1/generations", json=question.body()) as response:
                await _refusal(response, account)
                if account.over:
                    return
                account.generation = (await response.json())["generation"]
        headers = {"Accept": "text/event-stream"}
        if account.position:
            headers["Last-Event-ID"] = account.cursor
        events = f"{doors.edge_url}/v1/generations/{account.generation}/events"
        async with session.get(events, headers=headers) as response:
            await _refusal(response, account)
            if account.over:
                return
            connection = response.connection
            if connection is not None and connection.transport is not None:
                account.through = doors.edge_behind(connection.transport.get_extra_info("sockname"))
            async for line in response.content:
                if line.startswith(b"data: "):
                    account.frame(json.loads(line[6:]), time.monotonic())
                    on(account)
    if not account.over:
        raise ConnectionResetError("the stream ended")


async def _refusal(response: aiohttp.ClientResponse, account: Account) -> None:
    """Books an error status. Raises ComeAgain where it passes."""
    if response.status == 204:
        account.give_up("nothing is left to read")
    elif response.status >= 400:
        said = json.loads(await response.text())
        account.refused(str(said["error"]["code"]))


async def _grpc(attempt: int, doors: Doors, question: Question, account: Account, on: Changed) -> None:
    name, address = doors.router(attempt)
    async with open_channel(address, SharedSettings()) as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        metadata = tuple((key.lower(), value) for key, value in doors.credentials.items())
        call = (
            stub.Resume(
                router_pb2.ResumeRequest(generation=account.generation, cursor=account.cursor), metadata=metadata
            )
            if account.generation
            else stub.Generate(router_pb2.GenerateRequest(request=question.request()), metadata=metadata)
        )
        account.through = name
        try:
            async with own_call(call):
                async for response in call:
                    for event in response.events:
                        account.event(event, time.monotonic())
                        on(account)
        except grpc.aio.AioRpcError as error:
            problem = from_rpc_error(error)
            if problem.name in ("internal", "cancelled"):  # the transport's own words, for a connection that broke
                raise
            account.refused(problem.name)
    if not account.over:
        raise ConnectionResetError("the call ended")
