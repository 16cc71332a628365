"""What a token costs in each loop that all tokens pass, counted instead of timed: the same on a busy machine and a quiet one.

    python -m benchmarks.hot_loops              prints the counts
    python -m benchmarks.hot_loops --save       and makes them the measure of the test

Counted are the bytecodes that the interpreter executes and the C functions that they call, for a token alone: what three
hundred tokens take less what fifty take. Both are the same in each run of one version of Python. Time that passes inside a C
function is not seen, so this finds code that grew, not a library that became slower.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple, cast

from prometheus_client import CollectorRegistry

from services.edge.core.openai_chunks import ChunkEncoder
from services.edge.core.ws_frames import GenerationFrames
from services.edge.io.chat_readers import StreamReader
from services.edge.io.event_readers import EventStreamReader
from services.edge.io.metrics import EdgeMetrics
from services.edge.io.outbox import ChunkedOutbox, Flusher, Outbox
from services.inference_adapter.backends.openai_http.chunks import ChunkReader
from services.inference_adapter.backends.openai_http.sse import SSEParser
from services.inference_adapter.core.memory import Memory
from services.inference_adapter.core.numbering import Numbering
from services.inference_adapter.core.wire import framed
from services.inference_adapter.io.delivery import Delivery
from services.inference_adapter.io.fanout.outbox import Outbox as WorkerOutbox
from services.inference_adapter.io.fanout.subscription import Subscription
from services.inference_adapter.metrics import AdapterMetrics
from streamway.attach.table import SubscriptionTable
from streamway.journal import Begun, Entry, Kind, Line, Merger, Place, Writing
from streamway.journal.channel import Channel
from streamway.journal.cursor import Cursor
from streamway.journal.entries import Begin
from streamway.journal.packing import head_of, pack_append
from streamway.lanes import TaskCopy
from streamway.runtime.clock import SystemClock
from streamway.v1 import common_pb2, inference_pb2
from streamway.valkey import keys

SAVED: Final = Path(__file__).parent / "results" / "hot-loops.json"
VERSION: Final = f"{sys.implementation.name}-{sys.version_info.major}.{sys.version_info.minor}"
_GENERATION: Final = "0198c0de-0000-7000-8000-000000000001"
_EPOCH: Final = 1 << 20
_FEW, _MANY = 50, 300


class Cost(NamedTuple):
    """Of one token."""

    bytecodes: float
    c_calls: float


class Counted:
    """Counts what runs inside `with`, in this thread."""

    def __init__(self) -> None:
        self.bytecodes = self.c_calls = 0

    def __enter__(self) -> Counted:
        sys.setprofile(self._profile)
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        sys.setprofile(None)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.bytecodes += 1
        return self._trace

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            self.c_calls += 1


class _Engine:
    """Where the engine's reader puts what it reads: the numbering of one generation."""

    def __init__(self) -> None:
        self.numbering = Numbering()
        self.numbering.started(_EPOCH, "worker", 0)
        self.numbering.take()
        self.piece, self.several = self.numbering.piece, self.numbering.several


class _Discarding(asyncio.Transport):
    """A client that reads everything at once."""

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """It is gone."""

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False


class _Sink:
    """Where one subscription of the edge puts what comes."""

    def __init__(self, event: Callable[[common_pb2.Event, str], None]) -> None:
        self.event = event

    def lost(self, error: Exception, delivered_until: int) -> None:
        raise error

    def gap(self) -> None:
        raise AssertionError("every event follows the one before")


def engine_reader(tokens: int) -> Callable[[], None]:
    """An engine's server-sent events, one in a packet, until each piece has its number."""
    head = b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1796032557,"model":"m","choices":[{"index":0,'
    packets = [b'%b"delta":{"content":" word%d"},"finish_reason":null}]}\n\n' % (head, n) for n in range(tokens)]
    parser, reader = SSEParser(), ChunkReader(cast("Any", _Engine()))

    def run() -> None:
        for packet in packets:
            for data in parser.feed(reader.read_together(parser, packet)):
                reader.read(data)

    return run


def worker_flush(tokens: int) -> Callable[[], None]:
    """From a numbered piece to the event for its readers and the bytes of its append, one token in a flush."""
    numbering = _Engine().numbering
    key = keys.response(_GENERATION)
    head = head_of(key)

    def run() -> None:
        for _ in range(tokens):
            numbering.piece(0, " word")
            events = numbering.take()
            last = numbering.position
            payload = framed(events[0][1])
            pack_append(key, head, Entry(_EPOCH, last, last, Kind.TOKENS, payload))

    return run


class _Store:
    """A session whose replies come when they are called for."""

    alive = True

    def __init__(self) -> None:
        self.replies: list[Callable[[Any], None]] = []

    def send_packed(self, packed: bytes, on_reply: Callable[[Any], None]) -> None:
        self.replies.append(on_reply)


def worker_delivery(tokens: int) -> Callable[[], None]:
    """From the store's reply to an append to the batch for its reader, one token in an entry and one entry in a batch."""
    clock = SystemClock()
    memory = Memory(most_bytes=1 << 30, most_ended=1, generation_bytes=1 << 30, ended_ttl_s=1, most_gone=1)
    transcript = memory.open(_GENERATION, "t", clock.monotonic(), journaled=True)
    line = Line(((0, 1), (_EPOCH, 2)))
    begin = Entry(_EPOCH, 2, 2, Kind.BEGIN, b"", Begin("ref", "worker", line))
    metrics = AdapterMetrics(CollectorRegistry())
    ignored = lambda *_: None  # noqa: E731
    delivery = Delivery(transcript, memory, clock, metrics, strict=False, on_stopped=ignored, on_finished=ignored)
    store = _Store()
    channel = Channel(Begun(TaskCopy(_GENERATION, 1, "ref"), Place("lane", "1-1"), (), begin), clock.monotonic())
    writing = Writing(channel, cast("Any", store), delivery, clock.monotonic, ignored)
    outbox = WorkerOutbox(1 << 30)
    subscription = Subscription(outbox, clock, 1, _GENERATION, tenant=None)
    outbox.add(subscription)
    transcript.line = line
    subscription.bind(transcript)
    numbering = _Engine().numbering
    for _ in range(tokens):
        numbering.piece(0, " word")
        events = numbering.take()
        delivery.put(events)
        writing.append(Kind.TOKENS, numbering.position, framed(events[0][1]))

    def run() -> None:
        for reply in store.replies:
            reply(b"1048576-3")
            outbox.batch()

    return run


def edge(surface: str) -> Callable[[int], Callable[[], None]]:
    """From the bytes of a batch of one token to what is written to its client."""

    def of(tokens: int) -> Callable[[], None]:
        batches = []
        for n in range(tokens):
            event = common_pb2.Event(epoch=_EPOCH, position=3 + n, subscription=1)
            event.token.text = f" word{n}"
            event.token.units = 1
            batches.append(inference_pb2.AttachResponse(events=[event]).SerializeToString())
        flusher = Flusher(EdgeMetrics(CollectorRegistry()), slow_bytes=1 << 16, slow_s=5, buffer_bytes=1 << 20)
        kind = Outbox if surface == "websocket" else ChunkedOutbox
        outbox = kind(_Discarding(), flusher, surface, lambda _: None)
        table = SubscriptionTable("worker", lambda _: None)
        sink = _Sink(_reader(surface, outbox))
        table.add(_GENERATION, Merger(Cursor(_EPOCH, 2)), inference_pb2.VIEW_LIVE, sink, 0)
        parse = inference_pb2.AttachResponse.FromString

        def run() -> None:
            for batch in batches:
                table.take(parse(batch).events)
                flusher.flush()

        return run

    return of


def _reader(surface: str, outbox: Outbox) -> Callable[[common_pb2.Event, str], None]:
    if surface == "websocket":
        frames = GenerationFrames("a")
        return lambda event, _: outbox.put(frames.token(event))
    if surface == "openai":
        chat = StreamReader(ChunkEncoder(_GENERATION, "m", created=0, choices=1, include_usage=True), "request")
        chat.send_to(outbox)
        return chat.event
    events = EventStreamReader(_GENERATION, Cursor(_EPOCH, 2), 1 << 16)
    events.send_to(outbox)
    return events.event


LOOPS: Final[dict[str, Callable[[int], Callable[[], None]]]] = {
    "adapter: engine's events to numbered pieces": engine_reader,
    "adapter: pieces to events and appends": worker_flush,
    "adapter: replies of the store to batches": worker_delivery,
    "edge: batch to WebSocket frames": edge("websocket"),
    "edge: batch to OpenAI chunks": edge("openai"),
    "edge: batch to server-sent events": edge("sse"),
}


def measured() -> dict[str, Cost]:
    """What a token costs in each loop."""

    def counted(run: Callable[[], None]) -> Counted:
        with Counted() as count:
            run()
        return count

    async def all_of_them() -> dict[str, Cost]:
        found = {}
        for name, loop in LOOPS.items():
            loop(_FEW)()  # what is made once, such as caches
            few, many = counted(loop(_FEW)), counted(loop(_MANY))
            tokens = _MANY - _FEW
            found[name] = Cost(
                round((many.bytecodes - few.bytecodes) / tokens, 2), round((many.c_calls - few.c_calls) / tokens, 2)
            )
        return found

    return asyncio.run(all_of_them())


def saved() -> dict[str, Cost] | None:
    """What it cost when the measure was made, by this version of Python; None: there is none of this version."""
    found = json.loads(SAVED.read_text(encoding="utf-8")).get(VERSION)
    return None if found is None else {name: Cost(*cost) for name, cost in found.items()}


def main() -> None:
    """Prints the counts, beside the saved ones."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hot_loops", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", action="store_true", help=f"write them to {SAVED.name}")
    options = parser.parse_args()
    found, before = measured(), saved() or {}
    print(f"| of one token, {VERSION} | bytecodes | C calls | before |\n|---|---|---|---|")
    for name, cost in found.items():
        old = before.get(name)
        print(
            f"| {name} | {cost.bytecodes:g} | {cost.c_calls:g} | {f'{old.bytecodes:g}, {old.c_calls:g}' if old else '–'} |"
        )
    if options.save:
        kept = json.loads(SAVED.read_text(encoding="utf-8"))
        SAVED.write_text(json.dumps({**kept, VERSION: found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
