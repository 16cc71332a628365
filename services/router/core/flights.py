"""Generations that are asked for more than once at the same time: one runs, the others read along.

    key ──► Flight   leader      the generation that runs, in a channel of its own
                     holders     everybody here who still wants it, the leader too until it cancels
                     open        somebody may still join: it was asked for by the first holder and has not ended
                     ours        this router dispatched the leader; else another one did, and some here follow it

    cancel of a holder   others are left: it just leaves        the last one: the engine's call is aborted, unless other routers
                                                                have holders too (`io.shared_flights` asks)

The key holds the tenant and the model, so flights never cross either. At most `most` flights with at most `most_followers` each;
beyond that a request runs for itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from services.router.core.body import Body
from services.router.core.cacheable import may_read, may_store, qualifies
from streamway.cachekey import NotCanonical, canonical_form, exact_key
from streamway.v1 import common_pb2

# A follower may be ended by its leader's deadline so much sooner than by its own.
_DEADLINE_SLACK_MS = 1_000


class Leaving(StrEnum):
    """What a cancel comes to."""

    UNKNOWN = "unknown"  # it belongs to no flight
    STAYS = "stays"  # others want it still
    LAST = "last"  # nobody does


def terms_of(request: common_pb2.GenerationRequest) -> common_pb2.GenerationRequest:
    """What `Flight.suits` looks at, and whose it is: all that another router must know of a leader."""
    return common_pb2.GenerationRequest(
        generation=request.generation,
        tenant=request.tenant,
        deadline_unix_ms=request.deadline_unix_ms,
        priority=request.priority,
        durability=request.durability,
        on_disconnect=request.on_disconnect,
        cache=request.cache,
    )


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
    ours: bool = True

    @property
    def leader(self) -> str:
        """The generation that runs."""
        return self.request.generation

    def suits(self, request: common_pb2.GenerationRequest) -> bool:
        """The leader is treated at least as well as this one asks to be: by when, how urgently, how durably. One that may be
        answered by likeness is for those who would take that."""
        leader, unread = self.request, common_pb2.ON_DISCONNECT_CONTINUE
        alike = common_pb2.CACHE_POLICY_SEMANTIC
        if leader.cache == alike and request.cache != alike:
            return False
        if request.on_disconnect == unread and leader.on_disconnect != unread:
            # It must go on without any reader.
            return False
        mine, its = request.deadline_unix_ms, leader.deadline_unix_ms
        in_time = not its or 0 < mine <= its + _DEADLINE_SLACK_MS
        return in_time and request.durability == leader.durability and request.priority <= leader.priority


def flight_key(request: common_pb2.GenerationRequest, body: Body | None, limit_bytes: int) -> bytes | None:
    """The cache's key of a request that may share an engine call; None where it may not.

    It must qualify for the cache, also as to what is stored, and be durable, since followers read its channel; and it must have
    no idempotency key, which says by itself what it may be attached to.
    """
    if request.durability == common_pb2.DURABILITY_OFF or request.idempotency_key:
        return None
    if not (may_read(request) and may_store(request)):
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
        self._by_leader: dict[str, Flight] = {}
        # Of everybody here who was ever in it, until it has ended.
        self._by_id: dict[str, Flight] = {}

    def __len__(self) -> int:
        return len(self._by_leader)

    def __iter__(self) -> Iterator[Flight]:
        """All, also those that nobody joins any more."""
        return iter(list(self._by_leader.values()))

    @property
    def followers(self) -> int:
        """Generations that read along."""
        return len(self._by_id) - sum(flight.ours for flight in self._by_leader.values())

    def leads(self, generation: str) -> bool:
        """It is the leader of a flight here."""
        return generation in self._by_leader

    def knows(self, key: bytes) -> bool:
        """Some flight here has this key, whether or not a certain request may join it."""
        return key in self._by_key

    def begin(self, key: bytes, request: common_pb2.GenerationRequest, worker: str, address: str) -> Flight | None:
        """A generation was dispatched: others may join it. None: there are too many, and it flies alone."""
        if len(self) >= self._most or request.generation in self._by_id:
            return None
        flight = Flight(key, request, worker, address, {request.generation}, {request.generation})
        self._by_key[key] = self._by_leader[flight.leader] = self._by_id[flight.leader] = flight
        return flight

    def adopt(self, found: Flight) -> Flight | None:
        """One that runs by another router's doing, or by ours, and was left by everybody here. None: there are too many."""
        flight = self._by_leader.get(found.leader)
        if flight is None:
            if len(self) >= self._most:
                return None
            flight = self._by_leader[found.leader] = found
        flight.open = True
        self._by_key[flight.key] = flight
        return flight

    def find(self, key: bytes, request: common_pb2.GenerationRequest, failed: str = "") -> Flight | None:
        """A flight that this request may join. `failed` is a leader that it has seen fail."""
        flight = self._by_key.get(key)
        if flight is None or not flight.open or flight.leader == failed or not flight.suits(request):
            return None
        room = len(flight.members) - flight.ours < self._most_followers or request.generation in flight.members
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

    def leave(self, generation: str, tenant: str | None) -> tuple[Leaving, Flight | None]:
        """A cancel of `tenant` (None: of any), and the flight it concerns. The last one closes it to newcomers."""
        flight = self._by_id.get(generation)
        if flight is None or tenant not in (None, flight.request.tenant):
            return Leaving.UNKNOWN, None
        flight.holders.discard(generation)
        if flight.holders:
            return Leaving.STAYS, flight
        self._shut(flight)
        return Leaving.LAST, flight

    def end(self, leader: str) -> Flight | None:
        """It has ended, or its worker is lost: nobody joins any more. Returns it; None: there was none."""
        flight = self._by_leader.pop(leader, None)
        if flight is not None:
            self._shut(flight)
            for member in flight.members:
                self._by_id.pop(member, None)
        return flight

    def _shut(self, flight: Flight) -> None:
        flight.open = False
        if self._by_key.get(flight.key) is flight:
            del self._by_key[flight.key]
