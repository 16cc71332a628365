"""Asks a router over gRPC and reads on, whatever connection breaks, until the answer has ended."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import grpc.aio

from services.supervisor.core.answer import Answer, BeginAnew
from streamway.config import SharedSettings
from streamway.errors import GenerationNotFound, StreamwayError, from_rpc_error
from streamway.rpc import open_channel, own_call
from streamway.runtime.ids import new_generation_id
from streamway.runtime.process import StartError
from streamway.v1 import common_pb2, router_pb2, router_pb2_grpc

# These end the reading, not the answer: somebody else lets it be read on.
_READ_ON: Final = frozenset({"going_away", "slow_consumer", "router_unavailable", "store_unavailable"})
_FIRST_WAIT_S: Final = 0.1
_MOST_WAIT_S: Final = 2.0
_CANCEL_S: Final = 5.0


class BrokenOff(Exception):
    """Nobody let the answer be read on for too long. It may still be running."""


class _Broke(Exception):
    """This call ended before the answer; `reason` is what the router said, if it said anything."""

    def __init__(self, reason: StreamwayError | None) -> None:
        super().__init__()
        self.reason = reason


class Asker:
    """Talks to the routers at `addresses`, the first that answers. Each try has a channel of its own."""

    def __init__(self, addresses: Sequence[str], shared: SharedSettings, metadata: Any, patience_s: float) -> None:
        self._addresses = tuple(addresses)
        self._shared = shared
        self._metadata = metadata
        self._patience_s = patience_s
        self._turn = 0

    @property
    def address(self) -> str:
        """The router that is asked now."""
        return self._addresses[self._turn % len(self._addresses)]

    async def models(self, within_s: float) -> list[str]:
        """The models it serves. Raises StartError where nobody answers, and what a router refuses with."""
        for _ in self._addresses:
            async with open_channel(self.address, self._shared) as channel:
                stub = router_pb2_grpc.RouterServiceStub(channel)
                try:
                    listed = await stub.ListModels(
                        router_pb2.ListModelsRequest(), metadata=self._metadata, timeout=within_s, wait_for_ready=False
                    )
                    return [model.name for model in listed.models]
                except grpc.aio.AioRpcError as problem:
                    if not _is_absence(problem):
                        raise from_rpc_error(problem) from None
            self._turn += 1
        raise StartError(
            f"no router answers at {', '.join(self._addresses)}; start a mesh with `streamway up`, or give --router HOST:PORT"
        )

    async def ask(self, request: common_pb2.GenerationRequest, answer: Answer, on: Callable[[str], None]) -> None:
        """One question. `on` gets each new piece of text, and "" where a note was added or the text begins anew.

        Raises the StreamwayError it ended with, and BrokenOff. Cancelling this cancels the generation.
        """
        request.generation = answer.generation = new_generation_id()
        await self._follow(request, answer, on)

    async def read_on(self, answer: Answer, on: Callable[[str], None]) -> None:
        """The same for a generation that was asked before, from the answer's cursor on."""
        await self._follow(None, answer, on)

    async def _follow(
        self, request: common_pb2.GenerationRequest | None, answer: Answer, on: Callable[[str], None]
    ) -> None:
        try:
            await self._read(request, answer, on)
        except asyncio.CancelledError:
            await self._cancel(answer.generation)
            raise

    async def _read(
        self, request: common_pb2.GenerationRequest | None, answer: Answer, on: Callable[[str], None]
    ) -> None:
        wait_s, moved = _FIRST_WAIT_S, time.monotonic()
        # Whether a question whose call broke was taken is not known: it is looked for first, and asked again where it is not.
        looking = False
        while not answer.over:
            before = answer.position
            try:
                await self._attempt(None if looking or before else request, answer, on)
            except BeginAnew:
                on("")
                continue
            except GenerationNotFound:
                if request is None or answer.position:
                    raise
                looking = False
            except _Broke as broke:
                looking = True
                if answer.position == before and time.monotonic() - moved > self._patience_s:
                    raise (broke.reason if broke.reason is not None and not before else BrokenOff()) from None
            if answer.position > before:
                wait_s, moved = _FIRST_WAIT_S, time.monotonic()
            if not answer.over:
                self._turn += 1
                await asyncio.sleep(wait_s)
                wait_s = min(_MOST_WAIT_S, wait_s * 2)

    async def _attempt(
        self, request: common_pb2.GenerationRequest | None, answer: Answer, on: Callable[[str], None]
    ) -> None:
        """One call: to ask, or to read on where there is nothing to ask. Raises _Broke where another one may go on."""
        async with open_channel(self.address, self._shared) as channel:
            stub = router_pb2_grpc.RouterServiceStub(channel)
            call: Any
            if request is not None:
                call = stub.Generate(router_pb2.GenerateRequest(request=request), metadata=self._metadata)
            else:
                resume = router_pb2.ResumeRequest(generation=answer.generation, cursor=answer.cursor)
                call = stub.Resume(resume, metadata=self._metadata)
            try:
                async with own_call(call):
                    async for response in call:
                        for event in response.events:
                            _take(event, answer, on)
            except grpc.aio.AioRpcError as problem:
                if _is_absence(problem):
                    raise _Broke(None) from None
                _raise(from_rpc_error(problem))
            except StreamwayError as problem:
                _raise(problem)
        if not answer.over:
            raise _Broke(None)

    async def _cancel(self, generation: str) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            async with open_channel(self.address, self._shared) as channel:
                await router_pb2_grpc.RouterServiceStub(channel).Cancel(
                    router_pb2.CancelRequest(generation=generation), metadata=self._metadata, timeout=_CANCEL_S
                )


def _take(event: common_pb2.Event, answer: Answer, on: Callable[[str], None]) -> None:
    notes = len(answer.notes)
    text = answer.receive(event)
    if text or len(answer.notes) > notes:
        on(text)


def _raise(reason: StreamwayError) -> NoReturn:
    raise _Broke(reason) if reason.name in _READ_ON else reason


def _is_absence(problem: grpc.aio.AioRpcError) -> bool:
    """Nobody said anything: the connection broke, or there was none."""
    return (
        problem.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED) and not problem.trailing_metadata()
    )
