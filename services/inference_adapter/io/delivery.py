"""From what the channel confirms to who reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from services.inference_adapter.core.delivery import Gate, Kept
from services.inference_adapter.core.memory import Gone, Memory
from services.inference_adapter.core.transcript import Transcript
from services.inference_adapter.metrics import AdapterMetrics
from streamway.errors import StreamwayError
from streamway.journal import StopReason
from streamway.runtime.clock import Clock


class Delivery:
    """The events of one journaled generation on their way into its transcript. A `WritingListener`.

    `on_stopped` and `on_finished` are told what the channel says of the whole call. `end_position` is that of the terminal event,
    once it is known.
    """

    __slots__ = (
        "_clock",
        "_forgotten",
        "_gate",
        "_memory",
        "_metrics",
        "_transcript",
        "end_position",
        "finished",
        "stopped",
        "unanswered_since",
    )

    # What a `WritingListener` has beside the two below; attributes, since this only passes them on.
    stopped: Callable[[StopReason], None]
    finished: Callable[[], None]

    def __init__(
        self,
        transcript: Transcript,
        memory: Memory,
        clock: Clock,
        metrics: AdapterMetrics,
        *,
        strict: bool,
        on_stopped: Callable[[StopReason], None],
        on_finished: Callable[[], None],
    ) -> None:
        self._transcript = transcript
        self._memory = memory
        self._clock = clock
        self._metrics = metrics
        self._gate = Gate(strict=strict)
        self._forgotten = False
        self.stopped = on_stopped
        self.finished = on_finished
        self.end_position = 0
        # Since when the store has confirmed nothing.
        self.unanswered_since: float | None = None

    @property
    def loose(self) -> bool:
        """Events go out without the store."""
        return self._gate.loose

    @property
    def held_back_s(self) -> float:
        """For how long readers have waited for a silent store."""
        since = self.unanswered_since
        return self._clock.monotonic() - since if since is not None and self._gate.waiting else 0.0

    def put(self, events: Sequence[Kept]) -> None:
        """The next flush. Per-token path."""
        ready = self._gate.put(events)
        if ready:
            self._deliver(ready)

    def confirmed(self, position: int) -> None:
        """Everything up to `position` is in the channel. Per-token path."""
        if self.unanswered_since is not None:
            self.unanswered_since = None
        ready = self._gate.confirmed(position)
        if ready:
            self._deliver(ready)

    def unanswered(self, position: int) -> None:
        """The store is silent."""
        if self.unanswered_since is None:
            self.unanswered_since = self._clock.monotonic()
        ready = self._gate.unanswered()
        if ready:
            self._metrics.not_durable.inc()
            self._deliver(ready)

    def go_on_without(self) -> None:
        """The store has lost the channel: what comes from now on goes out at once, marked."""
        self.unanswered_since = None
        ready = self._gate.lost()
        self._metrics.not_durable.inc()
        if ready:
            self._deliver(ready)

    def tell(self, error: StreamwayError, *, forget: bool) -> None:
        """Ends the readers here. What was delivered whole stays, for those who come late."""
        transcript = self._transcript
        if transcript.ended:
            return
        for reader in transcript.readers[:]:
            reader.fail(error)
        if forget:
            self._forgotten = True
            self._memory.forget(transcript, Gone.MOVED)

    def _deliver(self, events: Sequence[Kept]) -> None:
        if self._forgotten:
            return
        transcript, now = self._transcript, self._clock.monotonic()
        if events[-1][0] == self.end_position:
            # Readers that are told of the events below must see that they were the last.
            self._memory.end(transcript, now)
        added = self._memory.keep(transcript, events, now)
        for reader in transcript.readers[:]:
            reader.grown(added)
