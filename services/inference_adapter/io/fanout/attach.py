"""One Attach stream: commands come in, batches go out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from services.inference_adapter.io.fanout.directory import Directory
from services.inference_adapter.io.fanout.outbox import Outbox
from services.inference_adapter.io.fanout.subscription import Subscription
from services.inference_adapter.io.worker import Worker
from streamway.errors import InvalidArgument, TooManyGenerations, Unauthenticated
from streamway.runtime.clock import Clock
from streamway.runtime.ids import is_generation_id
from streamway.runtime.spacing import Spacing
from streamway.runtime.tasks import TaskScope
from streamway.v1 import inference_pb2

MOST_COMMANDS: Final = 1000


@dataclass(frozen=True, slots=True)
class AttachLimits:
    """Bounds of one stream. `wait_s`: how long a subscription may wait for a generation that is not here yet; `gather_s`: how far
    apart batches are at most because the worker is busy."""

    buffer_bytes: int
    subscriptions: int
    wait_s: float
    gather_s: float = 0.0


class AttachStream:
    """Serves one reader, an edge or a router. `tenant` None may read and cancel everything.

    A fault in one subscription ends that one with an error event; a fault in the protocol ends the stream.
    """

    def __init__(
        self, worker: Worker, directory: Directory, clock: Clock, limits: AttachLimits, tenant: str | None
    ) -> None:
        self._worker = worker
        self._directory = directory
        self._clock = clock
        self._limits = limits
        self._tenant = tenant
        self._outbox = Outbox(limits.buffer_bytes)

    async def run(self, commands: AsyncIterator[inference_pb2.AttachRequest]) -> AsyncIterator[bytes]:
        """The batches, each an AttachResponse as it is sent. Ends when the commands have ended and every subscription too.
        Raises StreamwayError."""
        outbox, spacing = self._outbox, Spacing(self._limits.gather_s)
        self._directory.opened(outbox)
        try:
            async with TaskScope("attach") as scope:
                scope.spawn(self._read(commands), "commands")
                while await outbox.wait():
                    await spacing.turn()
                    yield outbox.batch()
        finally:
            self._directory.closed(outbox)

    async def _read(self, commands: AsyncIterator[inference_pb2.AttachRequest]) -> None:
        try:
            async for request in commands:
                if len(request.commands) > MOST_COMMANDS:
                    raise InvalidArgument(
                        "commands", f"has {len(request.commands)} entries, the most are {MOST_COMMANDS}"
                    )
                for command in request.commands:
                    self._obey(command)
            self._outbox.no_more_commands()
        except Exception as error:  # noqa: BLE001 — raised again by the writer, which owns the stream
            self._outbox.end(error)

    def _obey(self, command: inference_pb2.AttachCommand) -> None:
        match command.WhichOneof("command"):
            case "subscribe":
                self._subscribe(command.subscribe)
            case "unsubscribe":
                self._directory.leave(self._outbox, command.unsubscribe.subscription)
            case "cancel":
                if not is_generation_id(command.cancel.generation):
                    raise InvalidArgument("cancel.generation", "must be a UUID of 36 characters in lower case")
                self._worker.cancel(command.cancel.generation, self._tenant)
            case "inline_task":
                self._run(command.inline_task)
            case "answered":
                self._let_go(command.answered.generation)
            case _:
                raise InvalidArgument("command", "is empty, or of a later version than this worker's")

    def _let_go(self, generation: str) -> None:
        if self._tenant is not None:
            raise Unauthenticated("only a router may say that a generation was answered")
        if not is_generation_id(generation):
            raise InvalidArgument("answered.generation", "must be a UUID of 36 characters in lower case")
        self._worker.answered(generation)

    def _run(self, task: inference_pb2.InlineTask) -> None:
        """What went past the router's checks, quotas and lanes may come from nobody but a router."""
        if self._tenant is not None:
            raise Unauthenticated("an inline task needs the mesh token")
        if not is_generation_id(task.request.generation):
            raise InvalidArgument("inline_task.request.generation", "must be a UUID of 36 characters in lower case")
        self._worker.run_inline(task.request, task.created_ms / 1000)

    def _subscribe(self, wanted: inference_pb2.Subscribe) -> None:
        if wanted.subscription == 0:
            raise InvalidArgument("subscribe.subscription", "must be 1 or more")
        if wanted.subscription in self._outbox.subscriptions:
            raise InvalidArgument("subscribe.subscription", f"{wanted.subscription} is in use on this stream")
        subscription = Subscription(
            self._outbox,
            self._clock,
            wanted.subscription,
            wanted.generation,
            tenant=self._tenant,
            after=wanted.after,
            after_epoch=wanted.after_epoch,
            view=wanted.view,
            wait_s=min(wanted.wait_ms / 1000 or self._limits.wait_s, self._limits.wait_s),
        )
        full = len(self._outbox.subscriptions) >= self._limits.subscriptions
        self._outbox.add(subscription)
        if full:
            subscription.fail(TooManyGenerations("stream", self._limits.subscriptions))
        elif not is_generation_id(wanted.generation):
            subscription.fail(InvalidArgument("subscribe.generation", "must be a UUID of 36 characters in lower case"))
        else:
            self._directory.join(subscription)
