"""Generations that are asked for more than once at the same time: one runs, the others read along.

    key ──► Flight   leader      the generation that runs, in a channel of its own
                     holders     everybody who still wants it, the leader too until it cancels
                     open        somebody may still join: it was asked for by the first holder and has not ended

    cancel of a holder   others are left: it just leaves        the last one: the engine's call is aborted

The key holds the tenant and the model, so flights never cross either. At most `most` flights with at most `most_followers` each;
beyond that a request runs for itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from services.router.core.body import Body
from services.router.core.cacheable import qualifies
from streamway.cachekey import NotCanonical, canonical_form, exact_key
from streamway.v1 import common_pb2

# A follower may be ended by its leader's deadline so much sooner than by its own.
_DEADLINE_SLACK_MS = 1_000


class Leaving(StrEnum):
    """What a cancel comes to."""

    UNKNOWN = "unknown"  # it belongs to no flight
    STAYS = "stays"  # others want it still
    LAST = "last"  # nobody does


@dataclass(slots=True)
class Flight:
    """One. `request` is the leader's; `members` are all who ever held it."""

    key: bytes
    request: common_pb2.GenerationRequest
    worker: str
    address: str
    holders: set[str] = field(default_factory=set)
    members: set[str] = field(default_factory=set)
    open: bool = True

    @property
    def leader(self) -> str:
        """The generation that runs."""
        return self.request.generation

    def suits(self, request: common_pb2.GenerationRequest) -> bool:
        """The leader is treated at least as well as this one asks to be: by when, how urgently, how durably."""
        unread = common_pb2.ON_DISCONNECT_CONTINUE
        if request.on_disconnect == unread and self.request.on_disconnect != unread:
            # It must go on without any reader.
            return False
        mine, its = request.deadline_unix_ms, self.request.deadline_unix_ms
        in_time = not its or 0 < mine <= its + _DEADLINE_SLACK_MS
        durably = request.durability == self.request.durability
        return in_time and durably and request.priority <= self.request.priority


def flight_key(request: common_pb2.GenerationRequest, body: Body | None, limit_bytes: int) -> bytes | None:
    """The cache's key of a request that may share an engine call; None where it may not.

    It must qualify for the cache and be durable, since followers read its channel; and it must have no idempotency key, which
    says by itself what it may be attached to.
    """
    if request.durability == common_pb2.DURABILITY_OFF or request.idempotency_key:
        return None
    if not qualifies(request, body, limit_bytes):
        return None
    try:
        return exact_key(request.tenant, request.model, canonical_form(request))
    except NotCanonical:
        return None


class Flights:
    """The flights of one router."""

    def __init__(self, most: int, most_followers: int) -> None:
        self._most = most
        self._most_followers = most_followers
        self._by_key: dict[bytes, Flight] = {}
        # Of everybody who was ever in it, until it has ended.
        self._by_id: dict[str, Flight] = {}
        self._flights = 0

    def __len__(self) -> int:
        return self._flights

    @property
    def followers(self) -> int:
        """Generations that read along."""
        return len(self._by_id) - self._flights

    def begin(self, key: bytes, request: common_pb2.GenerationRequest, worker: str, address: str) -> bool:
        """A generation was dispatched: others may join it. False: there are too many, and it flies alone."""
        if self._flights >= self._most or request.generation in self._by_id:
            return False
        flight = Flight(key, request, worker, address, {request.generation}, {request.generation})
        self._by_key[key] = self._by_id[request.generation] = flight
        self._flights += 1
        return True

    def find(self, key: bytes, request: common_pb2.GenerationRequest, failed: str = "") -> Flight | None:
        """A flight that this request may join. `failed` is a leader that it has seen fail."""
        flight = self._by_key.get(key)
        if flight is None or not flight.open or flight.leader == failed or not flight.suits(request):
            return None
        room = len(flight.members) <= self._most_followers or request.generation in flight.members
        return flight if room else None

    def join(self, flight: Flight, generation: str) -> None:
        """One more wants it."""
        flight.holders.add(generation)
        flight.members.add(generation)
        self._by_id[generation] = flight

    def undo(self, flight: Flight, generation: str) -> None:
        """It did not come to joining."""
        flight.holders.discard(generation)
        flight.members.discard(generation)
        self._by_id.pop(generation, None)

    def leave(self, generation: str, tenant: str | None) -> tuple[Leaving, str]:
        """A cancel of `tenant` (None: of any), and the leader it concerns. The last one closes the flight to newcomers."""
        flight = self._by_id.get(generation)
        if flight is None or tenant not in (None, flight.request.tenant):
            return Leaving.UNKNOWN, ""
        flight.holders.discard(generation)
        if flight.holders:
            return Leaving.STAYS, flight.leader
        self._shut(flight)
        return Leaving.LAST, flight.leader

    def end(self, leader: str) -> None:
        """It has ended, or its worker is lost: nobody joins any more."""
        flight = self._by_id.get(leader)
        if flight is None or flight.leader != leader:
            return
        self._shut(flight)
        for member in flight.members:
            self._by_id.pop(member, None)
        self._flights -= 1

    def _shut(self, flight: Flight) -> None:
        flight.open = False
        if self._by_key.get(flight.key) is flight:
            del self._by_key[flight.key]
