"""The worker's short memory: the events of each generation, for readers that come late or come back.

Memory ── transcripts: running and lately ended generations, bounded in bytes, number and time, each tenant's also by themselves
      ├── gone:        ids of which only that they were here is known
      └── tombstones:  ids that were cancelled before their task was read
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from enum import Enum

from services.inference_adapter.core.delivery import Kept
from services.inference_adapter.core.shares import BoundOf, Shares
from services.inference_adapter.core.transcript import LAST_MOMENT, OVERHEAD_BYTES, Transcript


class Gone(Enum):
    """What is known of a generation whose events are not kept."""

    EXPIRED = "expired"
    LOST = "lost"  # it ran in an earlier life of this worker
    MOVED = "moved"  # it goes on elsewhere, or its channel says how it ended


class Memory:
    """All transcripts. Ended ones are forgotten oldest first, for their age or when the bounds are reached.

    A running one keeps at most `generation_bytes` and drops its oldest events beyond that. `bound_of`: what a tenant may have
    before its own are dropped.
    """

    def __init__(
        self,
        *,
        most_bytes: int,
        most_ended: int,
        generation_bytes: int,
        ended_ttl_s: float,
        most_gone: int,
        bound_of: BoundOf = lambda _: None,
    ) -> None:
        self._most_bytes = most_bytes
        self._most_ended = most_ended
        self._generation_bytes = generation_bytes
        self._ended_ttl_s = ended_ttl_s
        self._most_gone = most_gone
        self._transcripts: dict[str, Transcript] = {}
        self._ended: OrderedDict[str, Transcript] = OrderedDict()
        self._gone: OrderedDict[str, Gone] = OrderedDict()
        # Until when, and which tenant may be meant; None: any.
        self._tombstones: OrderedDict[str, tuple[float, str | None]] = OrderedDict()
        self._shares = Shares(bound_of)
        self.bytes = 0
        # Of events that were dropped since their tenant had more than its bound.
        self.trimmed_bytes = 0

    def __len__(self) -> int:
        """Number of transcripts."""
        return len(self._transcripts)

    def open(
        self, generation: str, tenant: str, now: float, *, journaled: bool = False, request_bytes: int = 0
    ) -> Transcript:
        """Begins a transcript; its tenant also has `request_bytes` until it ends. Raises ValueError when there is one."""
        if generation in self._transcripts:
            raise ValueError(f"{generation} has a transcript already")
        transcript = Transcript(generation, tenant, now, journaled=journaled, request_bytes=request_bytes)
        self._transcripts[generation] = transcript
        transcript.share = self._shares.enter(transcript)
        self._trim(transcript)
        self._gone.pop(generation, None)
        return transcript

    def bound(self, most_bytes: int) -> None:
        """What all may have from now on. Ended ones go at once; a running one drops its oldest when it grows."""
        self._most_bytes = most_bytes
        while self.bytes > most_bytes and self._ended:
            self._forget_oldest()

    def over(self, tenant: str) -> bool:
        """The tenant has more here than its bound, though all of it that can be dropped has been."""
        return self._shares.over(tenant)

    def find(self, generation: str) -> Transcript | Gone | None:
        """The transcript, or why there is none any more, or None for an id that was never seen."""
        return self._transcripts.get(generation) or self._gone.get(generation)

    def keep(self, transcript: Transcript, events: Sequence[Kept], now: float) -> int:
        """Keeps new events; returns their bytes."""
        # `Transcript.keep` written out: per-token path.
        moment, added = int((now - transcript.opened_at) * 1000) & LAST_MOMENT, 0
        for position, raw in events:
            transcript.events.append(raw)
            transcript.positions.append(position)
            transcript.moments.append(moment)
            added += len(raw) + OVERHEAD_BYTES
        share = transcript.share
        transcript.bytes = kept = transcript.bytes + added
        self.bytes = in_all = self.bytes + added
        share.bytes = of_tenant = share.bytes + added
        if kept > self._generation_bytes or in_all > self._most_bytes or of_tenant > share.bound:
            self._make_room(transcript)
        return added

    def end(self, transcript: Transcript, now: float) -> None:
        """The terminal event of a transcript is in."""
        transcript.ended_at = now
        self._ended[transcript.generation] = transcript
        self._shares.ended(transcript)
        while len(self._ended) > self._most_ended:
            self._forget_oldest()

    def forget(self, transcript: Transcript, how: Gone) -> None:
        """Drops a transcript; of its generation only `how` it went is remembered."""
        if self._transcripts.get(transcript.generation) is not transcript:
            return
        del self._transcripts[transcript.generation]
        self._ended.pop(transcript.generation, None)
        self._shares.leave(transcript)
        self.bytes -= transcript.bytes
        self.mark_gone(transcript.generation, how)

    def sweep(self, now: float) -> None:
        """Forgets what has been kept for long enough."""
        while self._ended:
            ended_at = next(iter(self._ended.values())).ended_at
            if ended_at is None or now - ended_at < self._ended_ttl_s:
                break
            self._forget_oldest()
        while self._tombstones and next(iter(self._tombstones.values()))[0] <= now:
            self._tombstones.popitem(last=False)

    def mark_gone(self, generation: str, how: Gone) -> None:
        """Remembers of a generation only what became of it; the oldest such ids make room."""
        self._gone[generation] = how
        self._gone.move_to_end(generation)
        while len(self._gone) > self._most_gone:
            self._gone.popitem(last=False)

    def bury(self, generation: str, tenant: str | None, until: float) -> None:
        """Remembers that a generation was cancelled before it was read. `until` must not go back from call to call."""
        self._tombstones[generation] = (until, tenant)
        self._tombstones.move_to_end(generation)
        while len(self._tombstones) > self._most_gone:
            self._tombstones.popitem(last=False)

    def exhume(self, generation: str, tenant: str) -> bool:
        """True once for a generation of this tenant that was buried."""
        found = self._tombstones.get(generation)
        if found is None or found[1] not in (None, tenant):
            return False
        del self._tombstones[generation]
        return True

    def _make_room(self, growing: Transcript) -> None:
        self._trim(growing)
        while self.bytes > self._most_bytes and self._ended and next(iter(self._ended.values())) is not growing:
            self._forget_oldest()
        over = max(growing.bytes - self._generation_bytes, self.bytes - self._most_bytes)
        if over > 0:
            # A quarter more than needed, so that a long answer does not shift its lists at every flush.
            freed = growing.drop_oldest(over + self._generation_bytes // 4)
            self.bytes -= freed
            growing.share.bytes -= freed

    def _trim(self, growing: Transcript) -> None:
        """Drops what is the tenant's own while it has more than its bound."""
        share = growing.share
        if not share.over:
            return
        before = self.bytes
        dropped = share.trim(lambda ended: self.forget(ended, Gone.EXPIRED), growing)
        self.bytes -= dropped
        self.trimmed_bytes += before - self.bytes

    def _forget_oldest(self) -> None:
        self.forget(next(iter(self._ended.values())), Gone.EXPIRED)
