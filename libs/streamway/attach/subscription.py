"""One reader of one generation on an Attach stream, and what must be known to subscribe it again."""

from __future__ import annotations

from typing import Protocol

from streamway.errors import StreamwayError
from streamway.journal import Merger
from streamway.v1 import common_pb2, inference_pb2


class AttachSink(Protocol):
    """Where one subscription puts what it reads. Called on the event loop; must not block."""

    def event(self, event: common_pb2.Event, kind: str) -> None:
        """The next event. `kind` is the name of the set member of `Event.event`: "token", "finished" …"""
        ...

    def lost(self, error: StreamwayError, delivered_until: int) -> None:
        """The worker is gone, and nothing follows. `delivered_until` is the last position this sink got, 0 for none."""
        ...

    def gap(self) -> None:
        """Nothing follows: the worker's next event is not the one behind the cursor, or continues another text."""
        ...


class Subscription:
    """What must be known to subscribe again."""

    __slots__ = ("deliver", "generation", "judges", "merger", "receive", "sink", "view", "wait_ms")

    def __init__(
        self, generation: str, merger: Merger, view: inference_pb2.View.ValueType, sink: AttachSink, wait_ms: int
    ) -> None:
        self.generation = generation
        self.merger = merger
        # Bound once: per-token path.
        self.receive = merger.receive
        # Whoever reads the outcome alone gets one event, which follows nothing.
        self.judges = view != inference_pb2.VIEW_OUTCOME
        self.view = view
        self.sink = sink
        self.deliver = sink.event
        self.wait_ms = wait_ms

    def command(self, number: int) -> inference_pb2.AttachCommand:
        """Asks for what follows the last event that came."""
        epoch, position = self.merger.cursor
        return inference_pb2.AttachCommand(
            subscribe=inference_pb2.Subscribe(
                subscription=number,
                generation=self.generation,
                after=position,
                after_epoch=epoch,
                view=self.view,
                wait_ms=self.wait_ms,
            )
        )
