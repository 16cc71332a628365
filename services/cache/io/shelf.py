"""The cache's entries in the store: one value each, and for each tenant an index that bounds them.

sw:cache:{tenant}:<entry>   string   the entry, gone by itself when it expires
sw:cacherows:{tenant}       hash     entry → "size row", `#` → bytes of all
sw:cacheused:{tenant}       zset     entry → when it was last used: over a limit the longest unused goes
sw:cache-tenants            zset     tenant → when its last entry expires
sw:cache-changes            stream   what changes, in consecutive numbers

A tenant's keys have one hash tag, and a script touches only those of one tenant. Everything raises LinkLost and StoreRefused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from services.cache.core.records import Damaged, Row, unpack_row
from streamway.valkey import cache_index, keys
from streamway.valkey.link import Link
from streamway.valkey.script import Script
from streamway.valkey.session import LinkLost, Session, StoreRefused

# Entries that one write pushes out; what is over the limit then goes with the next one.
_MOST_PUSHED_OUT: Final = 200
_PAGE: Final = 500
# A follower that is further behind reads the entries themselves.
_MOST_CHANGES: Final = 10_000
_UNTOLD: Final = StoreRefused("no reply")

# `total` and `limit` are set. Gives the total, then entry and row of each that had to go.
_MAKE_ROOM: Final = f"""
local told = {{0}}
while total > limit and #told < {2 * _MOST_PUSHED_OUT} do
  local first = redis.call('ZPOPMIN', KEYS[2])
  if not first[1] then break end
  local row = redis.call('HGET', KEYS[1], first[1])
  if row then
    redis.call('HDEL', KEYS[1], first[1])
    total = total - tonumber(string.match(row, '^%d+') or 0)
    told[#told + 1] = first[1]
    told[#told + 1] = row
  end
end
redis.call('HSET', KEYS[1], '#', string.format('%d', total))
told[1] = total
return told
"""
# KEYS: rows, used, entry. ARGV: entry id, value, ms to live, row, size, now, limit, ms that the index lives at least.
_KEEP: Final = Script(f"""
redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[3])
local old = redis.call('HGET', KEYS[1], ARGV[1])
local total = tonumber(redis.call('HGET', KEYS[1], '#') or 0)
if old then total = total - tonumber(string.match(old, '^%d+') or 0) end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[4])
redis.call('ZADD', KEYS[2], ARGV[6], ARGV[1])
total = total + tonumber(ARGV[5])
for _, key in ipairs({{KEYS[1], KEYS[2]}}) do
  if redis.call('PTTL', key) < tonumber(ARGV[8]) then redis.call('PEXPIRE', key, ARGV[8]) end
end
local limit = tonumber(ARGV[7])
{_MAKE_ROOM}""")
# KEYS: rows, used. ARGV: limit.
_TRIM: Final = Script(f"""
local total = tonumber(redis.call('HGET', KEYS[1], '#') or 0)
local limit = tonumber(ARGV[1])
if total <= limit then return {{total}} end
{_MAKE_ROOM}""")
# KEYS: changes. ARGV: most, record. A stream that begins anew begins with the time, so that nobody takes it for the old one.
_TELL: Final = Script("""
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
local time = redis.call('TIME')
local number = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
if last[1] then number = tonumber(string.match(last[1][1], '^%d+')) + 1 end
return redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], string.format('%d-0', number), 'c', ARGV[2])
""")


class Put(NamedTuple):
    """One entry to be kept."""

    tenant: str
    id: str
    value: bytes
    row: bytes
    size_bytes: int
    lives_ms: int
    limit_bytes: int


class Left(NamedTuple):
    """What a tenant has after a write: bytes of its entries, and (entry, key) of those that are gone."""

    size_bytes: int
    gone: tuple[tuple[str, bytes], ...]


class Shelf:
    """Commands on one connection. `keep_ms` is how long the index of a tenant without writes stays."""

    def __init__(self, link: Link, keep_ms: int) -> None:
        self._link = link
        self._keep_ms = keep_ms

    def session(self) -> Session:
        """The connection. Raises LinkLost where there is none."""
        session = self._link.current
        if session is None:
            raise LinkLost
        return session

    async def keep(self, puts: Sequence[Put], now_ms: int) -> list[Left | StoreRefused]:
        """Writes entries, all in one go; one reply for each."""
        replies: dict[int, Any] = {}
        session = self.session()
        for number, put in enumerate(puts):
            on = (keys.cache_rows(put.tenant), keys.cache_used(put.tenant), keys.cache_entry(put.tenant, put.id))
            arguments = (
                *(put.id, put.value, put.lives_ms, put.row, put.size_bytes, now_ms, put.limit_bytes),
                self._keep_ms,
            )
            if number in (0, len(puts) - 1):
                # The first makes the script known, the last comes after all the others.
                try:
                    replies[number] = await _KEEP.call(session, on, *arguments)
                except StoreRefused as refused:
                    replies[number] = refused
            else:
                _KEEP.send(session, on, arguments, partial(replies.__setitem__, number))
        if puts:
            until_ms = now_ms + self._keep_ms
            names = [each for put in puts for each in (until_ms, put.tenant)]
            session.send(("ZADD", keys.cache_tenants(), "GT", *names), _ignore)
        return [self._left(put.tenant, replies.get(number, _UNTOLD)) for number, put in enumerate(puts)]

    async def trim(self, tenant: str, limit_bytes: int) -> Left:
        """Removes a tenant's longest unused entries until they take no more than that."""
        reply = await _TRIM.call(self.session(), _index(tenant), limit_bytes)
        left = self._left(tenant, reply)
        if isinstance(left, StoreRefused):
            raise left
        return left

    async def remove(self, tenant: str, ids: Sequence[str]) -> tuple[int, int]:
        """Removes entries; gives the bytes that are left, and how many there were."""
        session, gone, size_bytes = self.session(), 0, 0
        for page in _pages(ids):
            session.send(("UNLINK", *(keys.cache_entry(tenant, each) for each in page)), _ignore)
            size_bytes, *removed = await cache_index.REMOVE.call(session, _index(tenant), *page)
            gone += len(removed)
        return int(size_bytes), gone

    async def read(self, tenant: str, ids: Sequence[str]) -> list[bytes | None]:
        """The values; None for what has gone."""
        found = await self.session().call("MGET", *(keys.cache_entry(tenant, each) for each in ids))
        return list(found)

    async def tenants(self, now_ms: int) -> list[str]:
        """All that have something here, the last ones first."""
        session = self.session()
        session.send(("ZREMRANGEBYSCORE", keys.cache_tenants(), "-inf", now_ms - 1), _ignore)
        found = await session.call("ZREVRANGE", keys.cache_tenants(), 0, -1)
        return [each.decode() for each in found]

    async def size_bytes(self, tenant: str) -> int:
        """What a tenant's entries take."""
        return int(await self.session().call("HGET", keys.cache_rows(tenant), cache_index.TOTAL) or 0)

    async def rows(self, tenant: str, damaged: Callable[[str], object]) -> dict[str, tuple[Row, int]]:
        """Row and bytes of every entry of a tenant. `damaged` is told of those whose row cannot be read."""
        found: dict[str, tuple[Row, int]] = {}
        cursor: bytes = b"0"
        while True:
            cursor, fields = await self.session().call("HSCAN", keys.cache_rows(tenant), cursor, "COUNT", _PAGE)
            for id_, value in zip(fields[::2], fields[1::2], strict=True):
                if id_ == cache_index.TOTAL:
                    continue
                try:
                    found[id_.decode()] = (unpack_row(value), int(value.partition(b" ")[0]))
                except Damaged:
                    damaged(id_.decode(errors="replace"))
            if cursor == b"0":
                return found

    async def last_used(self, tenant: str) -> list[str]:
        """A tenant's entries, the last used first."""
        found = await self.session().call("ZREVRANGE", keys.cache_used(tenant), 0, -1)
        return [each.decode() for each in found]

    def touch(self, tenant: str, ids: Sequence[str], now_ms: int) -> None:
        """Entries were used."""
        names = [each for id_ in ids for each in (now_ms, id_)]
        self.session().send(("ZADD", keys.cache_used(tenant), "XX", "GT", *names), _ignore)

    async def put_standing(self, tenant: str, value: bytes, now_ms: int, lives_ms: int) -> None:
        """Keeps what is known of a tenant."""
        session = self.session()
        await session.call("SET", keys.cache_standing(tenant), value, "PX", lives_ms)
        session.send(("ZADD", keys.cache_tenants(), "GT", now_ms + lives_ms, tenant), _ignore)

    async def standing(self, tenant: str) -> bytes | None:
        """What is known of a tenant."""
        found: bytes | None = await self.session().call("GET", keys.cache_standing(tenant))
        return found

    async def put_book(self, tenant: str, value: bytes, now_ms: int, lives_ms: int) -> None:
        """Keeps what is told of a tenant."""
        session = self.session()
        await session.call("SET", keys.cache_book(tenant), value, "PX", lives_ms)
        session.send(("ZADD", keys.cache_tenants(), "GT", now_ms + lives_ms, tenant), _ignore)

    async def book(self, tenant: str) -> bytes | None:
        """What is told of a tenant."""
        found: bytes | None = await self.session().call("GET", keys.cache_book(tenant))
        return found

    async def tell(self, record: bytes) -> None:
        """Adds to the change stream."""
        await _TELL.call(self.session(), keys.cache_changes(), _MOST_CHANGES, record)

    async def position(self) -> int:
        """The number of the last change; 0 before the first."""
        last = await self.session().call("XREVRANGE", keys.cache_changes(), "+", "-", "COUNT", 1)
        return int(last[0][0].partition(b"-")[0]) if last else 0

    async def may_sweep(self, for_ms: int) -> bool:
        """One cache at a time clears what has expired."""
        return await self.session().call("SET", keys.cache_sweep(), "1", "NX", "PX", for_ms) is not None

    def _left(self, tenant: str, reply: Any) -> Left | StoreRefused:
        if isinstance(reply, StoreRefused):
            return reply
        if isinstance(reply, Exception):
            return StoreRefused(str(reply))
        gone = []
        for id_, value in zip(reply[1::2], reply[2::2], strict=True):
            try:
                gone.append((id_.decode(), unpack_row(value).key))
            except Damaged:
                gone.append((id_.decode(errors="replace"), b""))
        if gone:
            self.session().send(("UNLINK", *(keys.cache_entry(tenant, id_) for id_, _ in gone)), _ignore)
        return Left(int(reply[0]), tuple(gone))


def _index(tenant: str) -> tuple[str, str]:
    return keys.cache_rows(tenant), keys.cache_used(tenant)


def _pages(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[start : start + _PAGE] for start in range(0, len(ids), _PAGE))


def _ignore(_: object) -> None:
    """For replies that change nothing."""
