"""`streamway chat`: a conversation in the terminal, over the router's `Generate`."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc.aio
from rich.console import Console

from services.supervisor.commands.mesh import Mesh
from streamway.errors import InvalidArgument, StreamwayError, from_rpc_error, from_status
from streamway.rpc import open_channel, own_call
from streamway.runtime.process import StartError
from streamway.v1 import common_pb2, router_pb2, router_pb2_grpc

_HELP: Final = "/new begins anew, /model NAME changes the model, Ctrl-C stops an answer, Ctrl-D ends"
_ANSWER_BEGINS_S: Final = 5.0
# What a model says is text: it must not move the cursor or set colours.
_PRINTABLE: Final = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)])


def talk(
    question: str | None, model: str | None, max_tokens: int | None, options: Mapping[str, str | int | Path | None]
) -> None:
    """One answer when `question` is given ("-": read it from standard input), otherwise a conversation until Ctrl-D."""
    mesh = Mesh(options)
    if question == "-":
        question = sys.stdin.read()
    if question is not None and not question.strip():
        raise InvalidArgument("question", "is empty")
    with asyncio.Runner() as runner:
        chat = runner.run(_connect(mesh, model, max_tokens))
        try:
            if question is not None:
                runner.run(chat.ask(question))
            else:
                _converse(runner, chat)
        except KeyboardInterrupt:
            sys.exit(130)
        finally:
            runner.run(chat.close())


def _converse(runner: asyncio.Runner, chat: Chat) -> None:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - gives input() history and editing
    chat.note(f"{chat.model} at {chat.address}. {_HELP}")
    while True:
        try:
            line = input("› ").strip()
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
            continue
        try:
            if line.startswith("/"):
                runner.run(chat.command(line))
            elif line:
                runner.run(chat.ask(line))
        except KeyboardInterrupt:  # the runner has cancelled the answer, and its call with it
            print()
            chat.note("stopped")
        except StreamwayError as problem:
            chat.trouble(problem.message)


@dataclass(slots=True)
class _Timing:
    """When tokens came, in seconds on the monotonic clock."""

    asked: float
    first: float = 0.0
    last: float = 0.0
    units: int = 0

    def count(self, units: int) -> None:
        self.last = time.monotonic()
        self.first = self.first or self.last
        self.units += units

    def told(self, worker: str, cache: str) -> str:
        parts = [f"first token {(self.first - self.asked) * 1000:.0f} ms"] if self.units else []
        if self.units > 1 and self.last > self.first:
            parts.append(f"{(self.units - 1) / (self.last - self.first):.1f} tokens/s")
        parts.append(f"{self.units} tokens")
        return " · ".join(
            [*parts, *([worker] if worker else []), *(["from the cache"] if cache in ("exact", "semantic") else [])]
        )


class Chat:
    """A conversation with one model. What was said is kept and sent with each question."""

    def __init__(
        self,
        address: str,
        channel: grpc.aio.Channel,
        metadata: Any,
        models: list[str],
        model: str,
        max_tokens: int | None = None,
    ) -> None:
        self.address = address
        self.model = model
        self._limits = common_pb2.Limits(max_tokens=max_tokens)
        self._models = models
        self._channel = channel
        self._stub = router_pb2_grpc.RouterServiceStub(channel)
        self._metadata = metadata
        self._messages: list[common_pb2.Message] = []
        self._console = Console(stderr=True, highlight=False)

    async def ask(self, question: str) -> None:
        """Prints the answer as it comes. Raises the StreamwayError it ended with."""
        asked = common_pb2.Message(role="user", content=question)
        request = common_pb2.GenerationRequest(model=self.model, messages=[*self._messages, asked], limits=self._limits)
        text: list[str] = []
        timing = _Timing(time.monotonic())
        worker = cache = ""
        try:
            async with own_call(
                self._stub.Generate(router_pb2.GenerateRequest(request=request), metadata=self._metadata)
            ) as call:
                async for response in call:
                    for event in response.events:
                        kind = event.WhichOneof("event")
                        if kind == "accepted":
                            worker, cache = event.accepted.worker, event.accepted.cache
                        elif kind == "token":
                            timing.count(event.token.units or 1)
                            text.append(event.token.text)
                            sys.stdout.write(event.token.text.translate(_PRINTABLE))
                            sys.stdout.flush()
                        elif kind == "error":
                            raise from_status(event.error.status)
        except grpc.aio.AioRpcError as problem:
            raise _refusal(problem, self.address) from None
        finally:
            if text:  # also what was stopped: the model may go on from it
                self._messages += [asked, common_pb2.Message(role="assistant", content="".join(text))]
                print(flush=True)
        if self._console.is_terminal:
            self.note(timing.told(worker, cache))

    async def command(self, line: str) -> None:
        """`/new`, `/model NAME` or help."""
        name, _, rest = line.partition(" ")
        if name == "/new":
            self._messages.clear()
            self.note("a new conversation")
        elif name == "/model" and rest.strip():
            self.model = rest.strip()
            self.note(f"now {self.model}; known: {', '.join(self._models)}")
        else:
            self.note(_HELP)

    def note(self, text: str) -> None:
        """Something about the conversation; on standard error, so that answers can be piped."""
        self._console.print(text, style="dim", markup=False)

    def trouble(self, text: str) -> None:
        """Something went wrong with an answer."""
        self._console.print(text, style="red", markup=False)

    async def close(self) -> None:
        """Closes the channel."""
        await self._channel.close()


async def _connect(mesh: Mesh, model: str | None, max_tokens: int | None) -> Chat:
    """A conversation with `model`, or with the first one the router knows. Raises StartError when no router answers."""
    channel = open_channel(mesh.router, mesh.shared)
    try:
        listed = await router_pb2_grpc.RouterServiceStub(channel).ListModels(
            router_pb2.ListModelsRequest(), metadata=mesh.metadata, timeout=_ANSWER_BEGINS_S, wait_for_ready=False
        )
    except grpc.aio.AioRpcError as problem:
        await channel.close()
        raise _refusal(problem, mesh.router) from None
    names = [found.name for found in listed.models]
    if not names and model is None:
        await channel.close()
        raise StartError(f"the router at {mesh.router} knows no model yet; see `streamway status`")
    return Chat(mesh.router, channel, mesh.metadata, names, model or names[0], max_tokens)


def _refusal(problem: grpc.aio.AioRpcError, address: str) -> Exception:
    """The router's own words, or that there is no router."""
    if problem.code() == grpc.StatusCode.UNAVAILABLE and not problem.trailing_metadata():
        return StartError(
            f"no router answers at {address}; start a mesh with `streamway up`, or give --router HOST:PORT"
        )
    return from_rpc_error(problem)
