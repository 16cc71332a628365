"""One reader of one generation on one stream."""

from __future__ import annotations

from services.inference_adapter.core.transcript import Transcript
from services.inference_adapter.core.wire import generation_stamp, subscription_stamp
from services.inference_adapter.io.fanout.outbox import Outbox
from streamway.errors import EventsExpired, StreamwayError, to_status
from streamway.journal.cursor import Cursor
from streamway.journal.merge import follows
from streamway.runtime.clock import Clock
from streamway.v1 import common_pb2
from streamway.v1.inference_pb2 import View


class Subscription:
    """A place in a transcript. It reads nothing until it is bound to one.

    `number` is what its events carry on an Attach stream; where they are `named` they carry the generation instead.
    `tenant` None may read everything.
    """

    __slots__ = (
        "_clock",
        "_complete",
        "_live",
        "_outbox",
        "_outcome",
        "after",
        "after_epoch",
        "bound",
        "generation",
        "index",
        "number",
        "ready",
        "stamp",
        "tenant",
        "transcript",
        "wait_s",
        "wait_until",
        "waiting_bytes",
    )

    def __init__(
        self,
        outbox: Outbox,
        clock: Clock,
        number: int,
        generation: str,
        *,
        tenant: str | None,
        after: int = 0,
        after_epoch: int = 0,
        view: View.ValueType = View.VIEW_LIVE,
        named: bool = False,
        wait_s: float = 0.0,
    ) -> None:
        self.number = number
        self.generation = generation
        # What its events carry.
        self.stamp = generation_stamp(generation) if named else subscription_stamp(number)
        self.tenant = tenant
        self.wait_s = wait_s
        self.wait_until = clock.monotonic() + wait_s
        # Last position its reader has, and who wrote what the reader had when it came.
        self.after = after
        self.after_epoch = after_epoch
        self.transcript = Transcript(generation, "", 0.0)
        # Of the transcript's next event to send.
        self.index = 0
        self.bound = False
        # In the outbox's list of those with something to send, and how much of that it counted.
        self.ready = False
        self.waiting_bytes = 0
        self._outbox = outbox
        self._clock = clock
        # Plain booleans: a protobuf enum costs a lookup by name at each use, and `grown` is on the per-token path.
        self._live = view in (View.VIEW_UNSPECIFIED, View.VIEW_LIVE)
        self._outcome = view == View.VIEW_OUTCOME
        self._complete = view == View.VIEW_COMPLETE

    def bind(self, transcript: Transcript) -> None:
        """Reads `transcript` from its place on: at once, or after its end, as the view says."""
        self.transcript = transcript
        self.bound = True
        if transcript.ended:
            self._send_ended(0)
            return
        transcript.readers.append(self)
        if self._live:
            transcript.live += 1
            if transcript.line is not None or not transcript.journaled:
                self._seat()

    def seated(self) -> None:
        """The engine call has begun: the reader's place can be judged, and found."""
        if not self.on_line(self.transcript):
            self.fail(EventsExpired(self.generation))
        elif self._live:
            self._seat()

    def on_line(self, transcript: Transcript) -> bool:
        """Whether what the reader has is part of the answer that is told here; the channel may know of another."""
        line = transcript.line
        if line is None or not self.after:
            return True
        return self.after <= transcript.position and follows(line, Cursor(self.after_epoch, self.after))

    def grown(self, added_bytes: int) -> None:
        """New events were appended to the transcript."""
        if self._live:
            self._outbox.mark(self, added_bytes)
        elif self.transcript.ended_at is not None:
            self._send_ended(0 if self._outcome else self.transcript.bytes)

    def leave(self) -> None:
        """Stops reading; idempotent."""
        if not self.bound:
            return
        self.bound = False
        transcript = self.transcript
        if self in transcript.readers:
            transcript.readers.remove(self)
            if self._live:
                transcript.live -= 1
                if transcript.live == 0:
                    transcript.unread_since = self._clock.monotonic()

    def fail(self, error: StreamwayError) -> None:
        """Ends this subscription, and only this one, with an error event behind what its reader has.

        It has no epoch: it says nothing of the generation.
        """
        self.leave()
        told = common_pb2.Error(status=to_status(error), delivered_until=self.after)
        alone = Transcript(self.generation, "", 0.0)
        alone.add(common_pb2.Event(position=self.after + 1, error=told))
        alone.ended_at = 0.0
        self.transcript = alone
        self.index = 0
        self._outbox.mark(self, 0)

    def trimmed(self) -> None:
        """What comes next for this reader is no longer kept."""
        self.fail(EventsExpired(self.generation))

    def _seat(self) -> None:
        self.index = self.transcript.index_after(self.after)
        if self.index < self.transcript.end:
            self._outbox.mark(self, 0)

    def _send_ended(self, added_bytes: int) -> None:
        transcript = self.transcript
        self.index = transcript.end - 1 if self._outcome else transcript.index_after(self.after)
        if self._complete and self.index >= transcript.base:
            self.leave()
            self.transcript, self.index = transcript.timed(self.index), 0
        self._outbox.mark(self, added_bytes)
