"""The events of one generation, as far as a worker keeps them."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, Protocol

from services.inference_adapter.core.delivery import Kept
from services.inference_adapter.core.shares import Share
from streamway.errors import StreamwayError
from streamway.journal.line import Line
from streamway.runtime.wire import varint
from streamway.v1 import common_pb2

# What one kept event costs beside its own bytes: the head of a Python object, its place in three lists.
OVERHEAD_BYTES: Final = 60
# `Transcript.moments` holds 32 bits: 49 days.
LAST_MOMENT: Final = 2**32 - 1
# The head of `Event.offset_ms`.
_OFFSET: Final = b"\x88\x01"


class Reader(Protocol):
    """Somebody who reads a transcript while it grows."""

    def grown(self, added_bytes: int) -> None:
        """New events were appended; the last of them may be the terminal one."""
        ...

    def seated(self) -> None:
        """The engine call has begun: the transcript has its line, and everything that came before on it."""
        ...

    def fail(self, error: StreamwayError) -> None:
        """Nothing more comes from here."""
        ...


class Transcript:
    """The events of one generation as far as they are kept, serialised, in order. `tenant` owns it.

    `share` is what the tenant has of the memory; `request_bytes` of that are its request's, until it has ended.

    A `journaled` one has a response channel too, and a `line` from its engine call's begin on; before, it has no events.

    Indices count from the first event ever appended, and stay valid when the oldest events are dropped; `base` is the index
    of the oldest kept one.
    """

    __slots__ = (
        "base",
        "bytes",
        "dropped_until",
        "ended_at",
        "events",
        "generation",
        "journaled",
        "line",
        "live",
        "moments",
        "opened_at",
        "positions",
        "readers",
        "request_bytes",
        "share",
        "tenant",
        "unread_since",
    )

    def __init__(
        self, generation: str, tenant: str, now: float, *, journaled: bool = False, request_bytes: int = 0
    ) -> None:
        self.generation = generation
        self.tenant = tenant
        self.request_bytes = request_bytes
        self.share = Share(tenant)
        self.journaled = journaled
        self.line: Line | None = None
        self.events: list[bytes] = []
        # The (last) position of each event.
        self.positions = array("Q")
        # When each was given out: milliseconds since the transcript was opened.
        self.moments = array("I")
        self.opened_at = now
        self.base = 0
        # The newest position that is no longer kept.
        self.dropped_until = 0
        self.bytes = 0
        self.ended_at: float | None = None
        self.readers: list[Reader] = []
        # Readers that keep the generation alive, and since when there has been none.
        self.live = 0
        self.unread_since = now

    @property
    def ended(self) -> bool:
        """The terminal event is in."""
        return self.ended_at is not None

    @property
    def end(self) -> int:
        """Index behind the newest event."""
        return self.base + len(self.events)

    @property
    def position(self) -> int:
        """The newest position that is in; 1 before the first event, since `accepted` may have been made elsewhere."""
        return self.positions[-1] if self.positions else 1

    def index_after(self, position: int) -> int:
        """Index of the first event that a reader needs which has everything up to `position`.

        A merged event that `position` lies inside of is sent whole. The answer is below `base` when what follows `position`
        is no longer kept.
        """
        if position < self.dropped_until:
            return self.base - 1
        return self.base + bisect_right(self.positions, position)

    def timed(self, index: int) -> Transcript:
        """A copy from `index` on whose events say when they were given out, after the first of them. It belongs to no memory."""
        copy = Transcript(self.generation, self.tenant, self.opened_at)
        first = index - self.base
        began = self.moments[first] if first < len(self.moments) else 0
        copy.events = [
            raw + _OFFSET + varint((moment - began) & LAST_MOMENT)
            for raw, moment in zip(self.events[first:], self.moments[first:], strict=True)
        ]
        copy.positions, copy.moments = self.positions[first:], self.moments[first:]
        copy.ended_at = self.ended_at
        return copy

    def add(self, event: common_pb2.Event) -> int:
        """Keeps one more event; returns the bytes it takes."""
        return self.keep(((event.position, event.SerializeToString()),))

    def keep(self, events: Sequence[Kept]) -> int:
        """Keeps more events; returns the bytes they take."""
        added = 0
        for position, raw in events:
            self.events.append(raw)
            self.positions.append(position)
            self.moments.append(0)
            added += len(raw) + OVERHEAD_BYTES
        self.bytes += added
        return added

    def drop_oldest(self, enough_bytes: int) -> int:
        """Forgets old events until that many bytes are free, but never the newest; returns how many bytes were."""
        drop, freed = 0, 0
        while drop < len(self.events) - 1 and freed < enough_bytes:
            freed += len(self.events[drop]) + OVERHEAD_BYTES
            drop += 1
        if drop:
            self.dropped_until = self.positions[drop - 1]
            del self.events[:drop]
            del self.positions[:drop]
            del self.moments[:drop]
            self.base += drop
            self.bytes -= freed
        return freed
