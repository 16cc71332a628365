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
delivered, so that a sink sees no gap and no repetition. If the worker does not come back, every sink gets `lost`. A worker
sends at least a sign of life each 2 s to whom it has subscriptions of: when nothing comes for `silence_s`, the stream is torn
down and opened once more, since a stopped process or a cut network breaks nothing by itself.

Events are judged by `journal.Merger`: what a worker that was replaced goes on to say is dropped. An error event with epoch 0
is about the subscription, not a part of the generation.

An event belongs to its batch: a sink that keeps one keeps the whole batch in memory; copy or serialise what must last.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Any, Final

import grpc
import grpc.aio
import structlog

from streamway.attach.lines import line_of
from streamway.attach.subscription import AttachSink, Subscription
from streamway.config.shared import SharedSettings
from streamway.errors import Internal, StreamwayError, WorkerLost, from_rpc_error
from streamway.journal import Cursor, Merger, Verdict
from streamway.rpc import mesh_metadata, open_channel, own_call
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2, inference_pb2, inference_pb2_grpc

_log = structlog.get_logger("attach")

MOST_COMMANDS: Final = 1000
# Commands that are not said again by subscribing anew.
_KEPT: Final = frozenset({"cancel", "inline_task"})
# Three signs of life may be missed.
SILENCE_S: Final = 6.0
DELIVER: Final = Verdict.DELIVER
DROP: Final = Verdict.DROP
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
        silence_s: float = SILENCE_S,
        after_batch: Callable[[], None] | None = None,
    ) -> None:
        self.address = address
        self.worker = worker
        self._loop = asyncio.get_running_loop()
        self._reattach_s = reattach_s
        self._silence_s = silence_s
        self._after_batch = after_batch
        self._scope = scope
        self._metadata = mesh_metadata(shared)
        self._channel = open_channel(address, shared)
        self._stub: Any = inference_pb2_grpc.InferenceServiceStub(self._channel)
        self._subscriptions: dict[int, Subscription] = {}
        self._last_number = 0
        # Subscriptions of each generation, and which of these were cancelled: that is said again on a new stream.
        self._readers: dict[str, int] = {}
        self._cancelled: set[str] = set()
        # Commands not sent yet; while no stream is open only `_KEPT` ones, since subscriptions are sent anew on each stream.
        self._outbox: list[inference_pb2.AttachCommand] = []
        self._wake = asyncio.Event()
        self._open = False
        self._proven = False
        # When the stream last brought anything, and whether it was torn down because it did not.
        self._heard = 0.0
        self._silent = False
        self._idle_since: float | None = self._loop.time()
        self._task = scope.spawn(self._run(), f"attach-{worker}")

    def __len__(self) -> int:
        """Number of live subscriptions."""
        return len(self._subscriptions)

    @property
    def connected(self) -> bool:
        """A stream is open."""
        return self._open

    @property
    def idle_s(self) -> float:
        """Seconds since the last subscription ended; 0 while there is one or a command waits."""
        if self._subscriptions or self._outbox or self._idle_since is None:
            return 0.0
        return self._loop.time() - self._idle_since

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
        number = self._last_number
        while True:
            number = number % 0xFFFFFFFF + 1
            if number not in self._subscriptions:
                break
        self._last_number = number
        merger = after if isinstance(after, Merger) else Merger(after)
        subscription = Subscription(generation, merger, view, sink, wait_ms)
        if not self._subscriptions:
            self._heard = self._loop.time()
        self._subscriptions[number] = subscription
        self._readers[generation] = self._readers.get(generation, 0) + 1
        self._idle_since = None
        if self._open:
            self._outbox.append(subscription.command(number))
        self._wake.set()
        return number

    def unsubscribe(self, number: int) -> None:
        """Stops a subscription; one that has ended already is ignored."""
        if number not in self._subscriptions:
            return
        self._end(number)
        if self._open:
            self._outbox.append(inference_pb2.AttachCommand(unsubscribe=inference_pb2.Unsubscribe(subscription=number)))
            self._wake.set()

    def cancel(self, generation: str) -> None:
        """Aborts a generation on the worker, subscribed or not."""
        if generation in self._readers:
            self._cancelled.add(generation)
        self._note_idle()
        self._outbox.append(inference_pb2.AttachCommand(cancel=inference_pb2.CancelGeneration(generation=generation)))
        self._wake.set()

    def run(self, request: common_pb2.GenerationRequest, created_ms: int) -> None:
        """Gives the worker a task that can't go through a lane. It waits for the stream, and is lost if that breaks: a reader of
        the generation then hears of it by `lost`, or by the end of its wait."""
        task = inference_pb2.InlineTask(request=request, created_ms=created_ms)
        self._note_idle()
        self._outbox.append(inference_pb2.AttachCommand(inline_task=task))
        self._wake.set()

    async def close(self) -> None:
        """Ends the stream. Sinks are not called."""
        self._forget()
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
        try:
            async with asyncio.timeout_at(until):
                await self._channel.channel_ready()
        except TimeoutError:
            return WorkerLost(self.worker)
        opened = self._heard = self._loop.time()
        try:
            async with own_call(self._stub.Attach(metadata=self._metadata)) as call:
                self._outbox = [*self._everything_again(), *self._outbox]
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
        """Tears the stream down when it brings nothing. `until` bounds the first sign of one that replaces a silent one."""
        while True:
            await asyncio.sleep(self._silence_s / 12)
            if not self._subscriptions:
                continue
            now = self._loop.time()
            limit = self._heard + self._silence_s
            if until is not None and not self._proven:
                limit = min(limit, until)
            if now >= limit:
                _log.warning("attach_silent", worker=self.worker, subscriptions=len(self._subscriptions))
                self._silent = True
                call.cancel()
                return

    def _everything_again(self) -> list[inference_pb2.AttachCommand]:
        commands: list[inference_pb2.AttachCommand] = []
        for number, subscription in self._subscriptions.items():
            commands.append(subscription.command(number))
        for generation in self._cancelled:
            cancel = inference_pb2.CancelGeneration(generation=generation)
            commands.append(inference_pb2.AttachCommand(cancel=cancel))
        return commands

    async def _write(self, call: Any) -> None:
        """Sends what is queued, many commands a message. Ends when the stream does: the reader learns why."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._outbox:
                batch = self._outbox[:MOST_COMMANDS]
                try:
                    await call.write(inference_pb2.AttachRequest(commands=batch))
                except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    return
                del self._outbox[: len(batch)]

    async def _read(self, call: Any) -> None:
        read, take, now = call.read, self._take, self._loop.time
        while True:
            response = await read()
            if response is grpc.aio.EOF:
                return
            self._proven = True
            self._heard = now()
            if take(response.events) and self._after_batch is not None:
                self._after_batch()
            del response

    def _take(self, events: Iterable[common_pb2.Event]) -> bool:
        """Gives a batch to its readers, and keeps nothing of it; whether a sink was called."""
        # Per-token path: one lookup and one call an event.
        subscriptions = self._subscriptions
        called = False
        for event in events:
            subscription = subscriptions.get(event.subscription)
            if subscription is None:
                continue
            position = event.position
            kind = event.WhichOneof("event")
            if position and subscription.judges:
                epoch = event.epoch
                if epoch or kind != "error":
                    line = None if kind == "token" else line_of(event, kind or "")
                    verdict = subscription.merger.receive(epoch, event.first_position or position, position, line)
                    if verdict is not DELIVER:
                        if verdict is not DROP:
                            called = True
                            self._miss(event.subscription, subscription)
                        continue
            if kind in ("finished", "error"):
                self._end(event.subscription)
            called = True
            try:
                subscription.deliver(event, kind or "")
            except Exception:  # noqa: BLE001 — one reader's fault must not end the stream of the others
                _log.exception("sink_failed", worker=self.worker, of=subscription.generation)
                self._drop(event.subscription, subscription)
        return called

    def _drop(self, number: int, subscription: Subscription) -> None:
        self.unsubscribe(number)
        with contextlib.suppress(Exception):
            subscription.sink.lost(Internal(), subscription.merger.cursor.position)

    def _miss(self, number: int, subscription: Subscription) -> None:
        """What comes next for this reader is not here."""
        self.unsubscribe(number)
        try:
            subscription.sink.gap()
        except Exception:  # noqa: BLE001 — as above
            _log.exception("sink_failed", worker=self.worker, of=subscription.generation)

    def _give_up(self, error: StreamwayError) -> None:
        """Tells every reader that nothing more will come."""
        lost = list(self._subscriptions.values())
        self._forget()
        if lost:
            _log.warning("worker_lost", worker=self.worker, address=self.address, subscriptions=len(lost))
        for subscription in lost:
            try:
                subscription.sink.lost(error, subscription.merger.cursor.position)
            except Exception:  # noqa: BLE001 — the other readers must be told too
                _log.exception("sink_failed", worker=self.worker, of=subscription.generation)
        if lost and self._after_batch is not None:
            self._after_batch()

    def _end(self, number: int) -> None:
        generation = self._subscriptions.pop(number).generation
        left = self._readers[generation] - 1
        if left:
            self._readers[generation] = left
        else:
            del self._readers[generation]
            self._cancelled.discard(generation)
        self._note_idle()

    def _forget(self) -> None:
        self._subscriptions.clear()
        self._readers.clear()
        self._cancelled.clear()
        self._outbox.clear()
        self._note_idle()

    def _note_idle(self) -> None:
        if not self._subscriptions:
            self._idle_since = self._loop.time()
