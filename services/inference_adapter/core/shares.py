"""What each tenant has in the worker's memory, against its soft bound: `buffered_bytes` of its tier or row.

    events of ended generations     forgotten first, the oldest before the others
    events of running ones          then their oldest, of whichever has most
    requests that are here          stay: they are accepted work; while they alone are too much, `over` says so

Nobody else's are touched for it.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from services.inference_adapter.core.transcript import Transcript

BoundOf = Callable[[str], int | None]
"""The bound of a tenant, in bytes; None: it has none."""

# What is dropped of a running one beyond what has to be, as a part of the bound: so that it is not searched for at every flush.
_SPARE: Final = 8


class Share:
    """One tenant's. `bytes` are those of its transcripts and of its requests that have not ended."""

    __slots__ = ("bound", "bytes", "ended", "tenant", "transcripts")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.bound = math.inf
        self.bytes = 0
        self.transcripts: dict[str, Transcript] = {}
        # Those of them that have ended, oldest first.
        self.ended: OrderedDict[str, Transcript] = OrderedDict()

    @property
    def over(self) -> bool:
        """It has more than it should."""
        return self.bytes > self.bound

    def trim(self, forget: Callable[[Transcript], None], growing: Transcript) -> int:
        """Makes it less, if it is over; returns the bytes of events that were dropped of those that stay.

        `forget` drops one that has ended. `growing` is not forgotten: somebody is about to read its newest event.
        """
        for transcript in list(self.ended.values()):
            if not self.over:
                return 0
            if transcript is not growing:
                forget(transcript)
        dropped = 0
        while self.over:
            # The newest event of each stays, however large it is.
            droppable = [one for one in self.transcripts.values() if len(one.events) > 1]
            if not droppable:
                break
            fattest = max(droppable, key=lambda one: one.bytes)
            freed = fattest.drop_oldest(int(self.bytes - self.bound + self.bound // _SPARE))
            self.bytes -= freed
            dropped += freed
        return dropped


class Shares:
    """Those of all tenants that have something here. A bound that has changed holds from the tenant's next generation on."""

    def __init__(self, bound_of: BoundOf) -> None:
        self._bound_of = bound_of
        self._shares: dict[str, Share] = {}

    def __len__(self) -> int:
        return len(self._shares)

    def enter(self, transcript: Transcript) -> Share:
        """The share of its tenant, which now has it, with its request."""
        share = self._shares.get(transcript.tenant)
        if share is None:
            share = self._shares[transcript.tenant] = Share(transcript.tenant)
        bound = self._bound_of(transcript.tenant)
        share.bound = math.inf if bound is None else bound
        share.transcripts[transcript.generation] = transcript
        share.bytes += transcript.request_bytes
        return share

    def ended(self, transcript: Transcript) -> None:
        """Its request is not needed any more."""
        share = transcript.share
        share.ended[transcript.generation] = transcript
        share.bytes -= transcript.request_bytes
        transcript.request_bytes = 0

    def leave(self, transcript: Transcript) -> None:
        """It is forgotten."""
        share = transcript.share
        del share.transcripts[transcript.generation]
        share.ended.pop(transcript.generation, None)
        share.bytes -= transcript.bytes + transcript.request_bytes
        transcript.request_bytes = 0
        if not share.transcripts:
            del self._shares[share.tenant]

    def over(self, tenant: str) -> bool:
        """The tenant has more here than it should, and all that can be dropped has been."""
        share = self._shares.get(tenant)
        return share is not None and share.over
