"""One `Attach` stream to one worker, shared by everything in this process that reads from it.

    class Reader:                                             # an AttachSink
        def event(self, event, kind): ...                     # each event once, in order; kind = event.WhichOneof("event")
        def lost(self, error, delivered_until): ...           # instead of a terminal event: the worker is gone for good
        def gap(self): ...                                    # or this: what comes next is not here, read the channel

    client = AttachClient("127.0.0.1:7010", "adapter-0", shared, scope, after_batch=flush_sockets)
    number = client.subscribe(generation, Cursor(0, 1), View.VIEW_LIVE, Reader())
    client.cancel(generation)                                 # abort; the terminal event still comes
    client.unsubscribe(number)                                # stop reading; nothing is called any more
    await client.close()

Nothing here blocks or raises: commands are queued and sent in batches; sinks are called on the event loop while a batch is
read, then `after_batch` once. A subscription ends by itself after its terminal event ("finished" or "error"), `lost` or `gap`.

A broken stream is opened again for `reattach_s`, and each generation is subscribed after the last position that was
delivered, so that a sink sees no gap and no repetition. If the worker does not come back, or refuses connections for
`refused_s`, every sink gets `lost`. A worker sends at least a sign of life each 2 s to whom it has subscriptions of: when
nothing comes for `silence_s`, the stream is torn down and opened once more, since a stopped process or a cut network breaks
nothing by itself.

Events are judged by `journal.Merger`: what a worker that was replaced goes on to say is dropped. An error event with epoch 0
is about the subscription, not a part of the generation.

An event belongs to its batch: a sink that keeps one keeps the whole batch in memory; copy or serialise what must last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import grpc
import grpc.aio
import structlog

from streamway.attach.reaching import reached
from streamway.attach.subscription import AttachSink
from streamway.attach.table import SubscriptionTable
from streamway.config.shared import SharedSettings
from streamway.errors import Internal, StreamwayError, WorkerLost, from_rpc_error
from streamway.journal import Cursor, Merger
from streamway.rpc import mesh_metadata, open_channel, own_call
from streamway.runtime.spacing import Spacing
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2, inference_pb2, inference_pb2_grpc

_log = structlog.get_logger("attach")

MOST_COMMANDS: Final = 1000
# Commands that are not said again by subscribing anew.
_KEPT: Final = frozenset({"cancel", "inline_task", "answered"})
# Three signs of life may be missed.
SILENCE_S: Final = 6.0
_LOOKS: Final = 12
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
# A stream that brought something, or lasted this long, was a real one: the next break is a new outage.
_PROVEN_AFTER_S: Final = 1.0
# The worker answers, and would answer the same again.
_FINAL_CODES: Final = frozenset(
    {
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INVALID_ARGUMENT,
    }
)


class AttachClient:
    """Subscriptions to the generations of one worker. Connects when there is something to read, and again after a break.

    `worker` is only for errors and logs. `scope` owns its tasks. `after_batch` is called once after each batch in which a
    sink was called.
    """

    def __init__(
        self,
        address: str,
        worker: str,
        shared: SharedSettings,
        scope: TaskScope,
        *,
        reattach_s: float = 5.0,
        refused_s: float | None = None,
        silence_s: float = SILENCE_S,
        after_batch: Callable[[], None] | None = None,
    ) -> None:
        self.address = address
        self.worker = worker
        self._loop = asyncio.get_running_loop()
        self._reattach_s = reattach_s
        self._refused_s = refused_s
        self._silence_s = silence_s
        self._after_batch = after_batch
        self._scope = scope
        self._metadata = mesh_metadata(shared)
        self._spacing = Spacing(shared.gather_late_ms / 1000)
        self._channel = open_channel(address, shared)
        self._stub: Any = inference_pb2_grpc.InferenceServiceStub(self._channel)
        self._subscriptions = SubscriptionTable(worker, self._left)
        # Commands not sent yet; while no stream is open only `_KEPT` ones, since subscriptions are sent anew on each stream.
        self._outbox: list[inference_pb2.AttachCommand] = []
        self._wake = asyncio.Event()
        self._open = False
        self._proven = False
        # When the stream last brought anything, and whether it was torn down because it did not.
        self._heard = 0.0
        self._silent = False
        # Subscriptions there ever were.
        self.uses = 0
        self._task = scope.spawn(self._run(), f"attach-{worker}")

    def __len__(self) -> int:
        """Number of live subscriptions."""
        return len(self._subscriptions)

    def reading(self, most: int) -> list[tuple[str, int]]:
        """Some of the generations that are read as they are made, and the position that each is at."""
        return self._subscriptions.reading(most)

    @property
    def connected(self) -> bool:
        """A stream is open."""
        return self._open

    @property
    def idle_s(self) -> float:
        """Seconds since the last subscription ended; 0 while there is one or a command waits."""
        idle_since = self._subscriptions.idle_since
        if self._subscriptions or self._outbox or idle_since is None:
            return 0.0
        return self._loop.time() - idle_since

    def subscribe(
        self,
        generation: str,
        after: Cursor | Merger,
        view: inference_pb2.View.ValueType,
        sink: AttachSink,
        *,
        wait_ms: int = 0,
    ) -> int:
        """Reads `generation` after a cursor. Returns the subscription's number on this client.

        A merger that is given instead is the caller's own: its cursor is always behind the last event the sink got.
        """
        self.uses += 1
        if not self._subscriptions:
            self._heard = self._loop.time()
        merger = after if isinstance(after, Merger) else Merger(after)
        number, subscription = self._subscriptions.add(generation, merger, view, sink, wait_ms)
        if self._open:
            self._outbox.append(subscription.command(number))
        self._wake.set()
        return number

    def unsubscribe(self, number: int) -> None:
        """Stops a subscription; one that has ended already is ignored."""
        self._subscriptions.remove(number)

    def cancel(self, generation: str) -> None:
        """Aborts a generation on the worker, subscribed or not."""
        self._subscriptions.cancel(generation)
        self._subscriptions.note_idle()
        self._outbox.append(inference_pb2.AttachCommand(cancel=inference_pb2.CancelGeneration(generation=generation)))
        self._wake.set()

    def answered(self, generation: str) -> None:
        """Tells the worker that the channel of a generation has an answer that is not its own: it lets go of it."""
        self._subscriptions.note_idle()
        self._outbox.append(inference_pb2.AttachCommand(answered=inference_pb2.Answered(generation=generation)))
        self._wake.set()

    def run(self, request: common_pb2.GenerationRequest, created_ms: int) -> None:
        """Gives the worker a task that can't go through a lane. It waits for the stream, and is lost if that breaks: a reader of
        the generation then hears of it by `lost`, or by the end of its wait."""
        task = inference_pb2.InlineTask(request=request, created_ms=created_ms)
        self._subscriptions.note_idle()
        self._outbox.append(inference_pb2.AttachCommand(inline_task=task))
        self._wake.set()

    async def close(self) -> None:
        """Ends the stream. Sinks are not called."""
        self._outbox.clear()
        self._subscriptions.clear()
        self._task.cancel()
        await asyncio.wait({self._task})
        await self._channel.close()

    async def _run(self) -> None:
        broken_since: float | None = None
        pause_s = _FIRST_PAUSE_S
        while True:
            if not self._subscriptions and not self._outbox:
                broken_since, pause_s = None, _FIRST_PAUSE_S
                self._wake.clear()
                await self._wake.wait()
                continue
            if broken_since is None:
                broken_since = self._loop.time()
            problem = await self._attach(broken_since + self._reattach_s)
            if problem is None and self._proven:
                broken_since, pause_s = self._loop.time(), _FIRST_PAUSE_S
                if self._silent:
                    # It had its time already; once more, for a network that was cut and is back.
                    broken_since -= max(0.0, self._reattach_s - self._silence_s / 2)
                if self._subscriptions:
                    _log.warning("attach_broken", worker=self.worker, subscriptions=len(self._subscriptions))
            left_s = broken_since + self._reattach_s - self._loop.time()
            if problem is not None or left_s <= 0:
                self._give_up(problem or WorkerLost(self.worker))
                broken_since, pause_s = None, _FIRST_PAUSE_S
                continue
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def _attach(self, until: float) -> StreamwayError | None:
        """Holds one stream until it breaks. Returns an error when trying again is pointless."""
        again, self._silent, self._proven = self._silent, False, False
        if not await reached(self._channel, self.address, self._scope, until=until, refused_s=self._refused_s):
            return WorkerLost(self.worker)
        opened = self._heard = self._loop.time()
        try:
            async with own_call(self._stub.Attach(metadata=self._metadata)) as call:
                self._outbox = [*self._subscriptions.commands(), *self._outbox]
                self._open = True
                self._wake.set()
                writer = self._scope.spawn(self._write(call), "write")
                watch = self._scope.spawn(self._watch(call, until if again else None), "watch")
                try:
                    await self._read(call)
                finally:
                    writer.cancel()
                    watch.cancel()
        except grpc.aio.AioRpcError as broken:
            if broken.code() in _FINAL_CODES:
                return from_rpc_error(broken, self.worker)
        except asyncio.CancelledError:
            # grpc.aio raises this also when the call was cancelled: by the watch, or by a *peer* that stops.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
        except Exception:  # noqa: BLE001 — readers must be told, whatever broke
            _log.exception("attach_failed", worker=self.worker)
            return Internal()
        finally:
            self._open = False
            self._outbox = [command for command in self._outbox if command.WhichOneof("command") in _KEPT]
            lasted = self._loop.time() - opened >= _PROVEN_AFTER_S
            self._proven = self._proven or (lasted and not self._silent)
        return None

    async def _watch(self, call: Any, until: float | None) -> None:
        """Tears the stream down when it brings nothing. `until` bounds the first sign of one that replaces a silent one.

        Looks are counted and not seconds: a process that stood still itself has not read yet what came meanwhile.
        """
        heard, quiet = self._heard, 0
        while True:
            await asyncio.sleep(self._silence_s / _LOOKS)
            if not self._subscriptions or self._heard != heard:
                heard, quiet = self._heard, 0
                continue
            quiet += 1
            if quiet >= _LOOKS or (until is not None and not self._proven and self._loop.time() >= until):
                _log.warning("attach_silent", worker=self.worker, subscriptions=len(self._subscriptions))
                self._silent = True
                call.cancel()
                return

    async def _write(self, call: Any) -> None:
        """Sends what is queued, many commands a message. Ends when the stream does: the reader learns why."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._outbox:
                await self._spacing.turn()
                batch = self._outbox[:MOST_COMMANDS]
                try:
                    await call.write(inference_pb2.AttachRequest(commands=batch))
                except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    return
                del self._outbox[: len(batch)]

    async def _read(self, call: Any) -> None:
        read, take, now = call.read, self._subscriptions.take, self._loop.time
        while True:
            response = await read()
            if response is grpc.aio.EOF:
                return
            self._proven = True
            self._heard = now()
            if take(response.events) and self._after_batch is not None:
                self._after_batch()
            del response

    def _left(self, number: int) -> None:
        """The worker would go on with a subscription."""
        if self._open:
            self._outbox.append(inference_pb2.AttachCommand(unsubscribe=inference_pb2.Unsubscribe(subscription=number)))
            self._wake.set()

    def _give_up(self, error: StreamwayError) -> None:
        """Tells every reader that nothing more will come."""
        self._outbox.clear()
        if self._subscriptions:
            _log.warning(
                "worker_lost", worker=self.worker, address=self.address, subscriptions=len(self._subscriptions)
            )
        if self._subscriptions.lose(error) and self._after_batch is not None:
            self._after_batch()
