"""Flights that all routers know: who runs a request for everybody, and which routers' clients want it.

sw:flight:{key}          hash    leader → generation, terms → what it promises, place → "worker address", "" until it is placed
sw:flight:{key}:holders  zset    router → until when it is believed to have holders, ms

A flight is under a lease that every router renews whose clients are in it: one that dies leaves nothing behind. A request that
may share an engine call and finds nobody here asks once; what does not qualify asks nothing, and while the store is away, or
late, each router has its own flights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from google.protobuf.message import DecodeError

from services.router.core.flights import Flight, terms_of
from services.router.core.patience import Patience
from services.router.io.journal import Journal
from streamway.errors import StoreUnavailable
from streamway.runtime.clock import Clock
from streamway.v1 import common_pb2
from streamway.valkey import keys
from streamway.valkey.script import Script
from streamway.valkey.session import Reply, Session

LEASE_S: Final = 15.0
_LEASE_MS: Final = int(LEASE_S * 1000)
# Between its first word and its place a leader needs a few milliseconds; who waits longer runs for itself.
_PLACED_WITHIN_S: Final = 2.0
_LOOK_S: Final = 0.02
# Renewed in one go; in between the loop does other things.
_AT_ONCE: Final = 100

_NOW: Final = """
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local function hold(router, lease)
  redis.call('ZADD', KEYS[2], now + lease, router)
  redis.call('PEXPIRE', KEYS[1], lease)
  redis.call('PEXPIRE', KEYS[2], lease)
end
"""
# ARGV: generation, its terms, a leader that was seen to fail, router, lease in ms. Reply: nothing: it leads; else leader, terms,
# place, and the router is among the holders.
_ENTER: Final = Script(
    _NOW
    + """
local leader = redis.call('HGET', KEYS[1], 'leader')
if leader and leader ~= ARGV[1] and leader ~= ARGV[3] then
  hold(ARGV[4], ARGV[5])
  return redis.call('HMGET', KEYS[1], 'leader', 'terms', 'place')
end
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('HSET', KEYS[1], 'leader', ARGV[1], 'terms', ARGV[2], 'place', '')
hold(ARGV[4], ARGV[5])
return {}
"""
)
# ARGV: leader, terms, place, router, lease in ms, '1' if the router has holders. Writes anew what the store has lost.
_KEEP: Final = Script(
    _NOW
    + """
local leader = redis.call('HGET', KEYS[1], 'leader')
if leader and leader ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'leader', ARGV[1], 'terms', ARGV[2], 'place', ARGV[3])
if ARGV[6] == '1' then hold(ARGV[4], ARGV[5]) else redis.call('PEXPIRE', KEYS[1], ARGV[5]) end
return 1
"""
)
# ARGV: leader, router. Reply: 1: nobody has holders any more, and the flight is over; 2: the store knows nothing of it.
_LEAVE: Final = Script(
    _NOW
    + """
if redis.call('HGET', KEYS[1], 'leader') ~= ARGV[1] then return 2 end
redis.call('ZREM', KEYS[2], ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
if redis.call('ZCARD', KEYS[2]) > 0 then return 0 end
redis.call('DEL', KEYS[1], KEYS[2])
return 1
"""
)
# ARGV: leader.
_END: Final = Script("""
if redis.call('HGET', KEYS[1], 'leader') == ARGV[1] then redis.call('DEL', KEYS[1], KEYS[2]) end
return 1
""")


class SharedFlights:
    """`me` is this router. `budget_s`: how long a request waits to hear who runs it; 0: nobody is asked or told."""

    def __init__(self, journal: Journal, clock: Clock, me: str, budget_s: float) -> None:
        self._journal = journal
        self._clock = clock
        self._me = me
        self._budget_s = budget_s
        self._patience = Patience()

    async def enter(self, key: bytes, request: common_pb2.GenerationRequest, failed: str) -> Flight | None:
        """Takes the lead for a key: None. Or finds another router's flight; this one counts as a holder then until it leaves.

        None too where that cannot be told in time. `failed` is a leader that was seen to fail.
        """
        now = self._clock.monotonic()
        if not self._budget_s or self._journal.away or not self._patience.allows(now):
            return None
        terms = terms_of(request).SerializeToString()

        async def ask(session: Session) -> Any:
            arguments = (request.generation, terms, failed, self._me, _LEASE_MS)
            return await _ENTER.call(session, _keys(key), *arguments)

        try:
            async with asyncio.timeout(self._budget_s):
                found = await self._journal.steps(ask)
        except TimeoutError:
            self._patience.late(now)
            return None
        except StoreUnavailable:
            return None
        self._patience.answered()
        return await self._placed(key, found) if found else None

    async def _placed(self, key: bytes, found: list[bytes]) -> Flight | None:
        """Waits until it is known where it runs. None: that came to nothing."""
        leader, terms, place = found

        async def look(session: Session) -> Any:
            return await session.call("HMGET", _keys(key)[0], "leader", "place")

        for _ in range(round(_PLACED_WITHIN_S / _LOOK_S)):
            if place:
                return _elsewhere(key, terms, place)
            await asyncio.sleep(_LOOK_S)
            try:
                now_leads, place = await self._journal.steps(look)
            except StoreUnavailable:
                return None
            if now_leads != leader:
                return None
        return None

    def keep(self, flight: Flight) -> None:
        """Says where it runs, and that it is wanted here where it is. Returns at once."""
        place = f"{flight.worker} {flight.address}"
        terms = terms_of(flight.request).SerializeToString()
        wanted = "1" if flight.holders else "0"
        self._send(_KEEP, flight.key, flight.leader, terms, place, self._me, _LEASE_MS, wanted)

    async def leave(self, flight: Flight) -> bool:
        """Nobody here wants it any more. True: nobody at all does, and its engine's call is to be aborted.

        False also where that cannot be told: then the worker ends it when nobody has read it for its grace. One of which the
        store knows nothing is ours alone, or has ended.
        """
        if not self._budget_s:
            return flight.ours

        async def ask(session: Session) -> int:
            return int(await _LEAVE.call(session, _keys(flight.key), flight.leader, self._me))

        try:
            reply = await self._journal.steps(ask)
        except StoreUnavailable:
            return False
        return reply == 1 or (reply == 2 and flight.ours)

    def end(self, key: bytes, leader: str) -> None:
        """It has ended, or nothing came of it: the next identical request begins anew. Returns at once."""
        self._send(_END, key, leader)

    async def run(self, flights: Iterable[Flight]) -> None:
        """Renews the leases of all of them until cancelled."""
        while True:
            await asyncio.sleep(LEASE_S / 3)
            for number, flight in enumerate(flights):
                self.keep(flight)
                if number % _AT_ONCE == _AT_ONCE - 1:
                    await asyncio.sleep(0)

    def _send(self, script: Script, key: bytes, *arguments: str | bytes | int) -> None:
        session = self._journal.link.current
        if self._budget_s and session is not None:
            script.send(session, _keys(key), arguments, _ignore)


def _keys(key: bytes) -> tuple[str, str]:
    return keys.flight(key.hex()), keys.flight_holders(key.hex())


def _elsewhere(key: bytes, terms: bytes, place: bytes) -> Flight | None:
    worker, _, address = place.decode(errors="replace").partition(" ")
    try:
        return Flight(key, common_pb2.GenerationRequest.FromString(terms), worker, address, ours=False)
    except DecodeError:
        return None


def _ignore(_: Reply) -> None:
    """For replies that change nothing."""
