"""Removes from the store what nobody will ask for again, and never what a lease holds. Each rule is a function.

A rule looks first, and what it decided is decided again in the step that removes: anybody may have come meanwhile. Sizes are what
MEMORY USAGE says of a key, and of rows their share of it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from redis.exceptions import ResponseError

from streamway.runtime.threads import in_thread
from streamway.valkey import cache_index, keys
from streamway.valkey.connection import Valkey, connect
from streamway.valkey.leases import known_leases

_PAGE: Final = 500
_CONNECT_S: Final = 1.0
# Consumers that did nothing for so long are removed: for an hour what a worker leaves behind can be found and cleared.
IDLE_MS: Final = 3_600_000
# Age from which an index file is removed; a cache whose entries live longer may want it longer.
_FILE_S: Final = 7 * 86_400.0
_ENDED: Final = (b"finished", b"failed", b"cancelled")

# KEYS: sorted set. ARGV: member, the score it had.
_DROP_ROW: Final = """
local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not score or tonumber(score) ~= tonumber(ARGV[2]) then return 0 end
return redis.call('ZREM', KEYS[1], ARGV[1])
"""
# KEYS: lane. ARGV: group, consumer, least ms idle. Removing one would also remove what is pending for it.
_DROP_CONSUMER: Final = """
local rows = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
if rows.err then return 0 end
for _, row in ipairs(rows) do
  local told = {}
  for i = 1, #row, 2 do told[row[i]] = row[i + 1] end
  if told['name'] == ARGV[2] and told['pending'] == 0 and told['idle'] >= tonumber(ARGV[3]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
    return 1
  end
end
return 0
"""
# KEYS: lane, the lease of its worker. ARGV: '1' to remove it. Entries are deleted when they are done with: none is left to read.
_DROP_LANE: Final = """
if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('EXISTS', KEYS[2]) == 1 or redis.call('XLEN', KEYS[1]) > 0 then return 0 end
for _, row in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  for i = 1, #row, 2 do
    if row[i] == 'pending' and row[i + 1] > 0 then return 0 end
  end
end
if ARGV[1] == '1' then redis.call('UNLINK', KEYS[1]) end
return 1
"""
# KEYS: channel. ARGV: '1' to remove it. Only one that has its end and yet would stay for ever.
_DROP_CHANNEL: Final = """
if redis.call('PTTL', KEYS[1]) ~= -1 then return 0 end
local tail = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if not tail then return 0 end
for i = 1, #tail[2], 2 do
  if tail[2][i] == 'kind' and tail[2][i + 1] == 'end' then
    if ARGV[1] == '1' then redis.call('UNLINK', KEYS[1]) end
    return 1
  end
end
return 0
"""
# KEYS: record. ARGV: '1' to remove it, then the states that are an end.
_DROP_RECORD: Final = """
if redis.call('PTTL', KEYS[1]) ~= -1 then return 0 end
local state = redis.call('HGET', KEYS[1], 'state')
for i = 2, #ARGV do
  if state == ARGV[i] then
    if ARGV[1] == '1' then redis.call('UNLINK', KEYS[1]) end
    return 1
  end
end
return 0
"""


class Freed(NamedTuple):
    """What one rule found."""

    what: str
    number: int
    size_bytes: int


class Pruning:
    """One run. `dry`: everything is looked at and nothing changed. Methods raise RedisError."""

    def __init__(self, valkey: Valkey, *, dry: bool) -> None:
        self._valkey = valkey
        self._dry = dry
        # Lanes that went, or would: their consumers go with them.
        self._lanes_gone: set[str] = set()

    async def run(self) -> list[Freed]:
        """All rules of the store, one after the other."""
        # Lanes before consumers: a lane takes its own with it.
        return [
            await self.cache_rows(),
            await self.context_rows(),
            await self.lanes(),
            await self.consumers(),
            await self.channels(),
            await self.records(),
        ]

    async def cache_rows(self) -> Freed:
        """Rows of cache entries that have expired. Caches that run do it themselves, and find out of others when they look."""
        count = size_bytes = 0
        async for name in self._names(keys.cache_rows("*")):
            tenant = _inside(name, keys.cache_rows("*"))
            gone, total = 0, max(1, await self._valkey.hlen(name))
            usage = await self._size(name)
            async for page in self._rows(self._valkey.hscan, name):
                ids = [id_.decode() for id_, _ in page if id_ != cache_index.TOTAL]
                lost = await self._absent(ids, [keys.cache_entry(tenant, id_) for id_ in ids])
                gone += len(lost)
                if lost and not self._dry:
                    on = (name, keys.cache_used(tenant))
                    await self._eval(cache_index.REMOVE.source, on, *lost)
            count += gone
            size_bytes += usage * gone // total
        return Freed("cache rows of expired entries", count, size_bytes)

    async def context_rows(self) -> Freed:
        """Rows of kept contexts that have gone, in the sets of the tenants and in that of running turns."""
        count = size_bytes = 0
        async for name in self._names(keys.contexts("*")):
            tenant = _inside(name, keys.contexts("*"))
            gone, freed = await self._drop_rows(name, partial(keys.context, tenant))
            count, size_bytes = count + gone, size_bytes + freed
        gone, freed = await self._drop_rows(keys.contexts_running(), _context_of)
        return Freed("rows of contexts that are gone", count + gone, size_bytes + freed)

    async def lanes(self) -> Freed:
        """Empty lanes of workers that nobody has heard of for an hour."""
        known, count, size_bytes = await known_leases(self._valkey, "worker"), 0, 0
        async for name in self._names(keys.lane("*", "gold").removesuffix("gold") + "*"):
            worker = name.partition("{")[2].rpartition("}")[0]
            if worker not in known:
                freed = await self._drop(name, _DROP_LANE, keys.lease("worker", worker))
                count, size_bytes = count + (freed > 0), size_bytes + freed
                if freed:
                    self._lanes_gone.add(name)
        return Freed("empty lanes of workers that are gone", count, size_bytes)

    async def consumers(self) -> Freed:
        """Idle consumers of lanes and pools, of workers and routers without a lease, for which nothing is pending."""
        living = {id_ for id_, alive in (await known_leases(self._valkey, "worker")).items() if alive}
        living |= {keys.reclaimer(id_) for id_, alive in (await known_leases(self._valkey, "router")).items() if alive}
        count = 0
        for kind in (keys.lane("*", "gold"), keys.pool("*", "gold")):
            async for name in self._names(kind.removesuffix("gold") + "*"):
                for consumer in await self._idle(name) if name not in self._lanes_gone else ():
                    if consumer.decode() in living:
                        continue
                    removed = self._dry or await self._eval(_DROP_CONSUMER, [name], keys.LANE_GROUP, consumer, IDLE_MS)
                    count += int(removed)
        return Freed("idle consumers of lanes and pools", count, 0)

    async def channels(self) -> Freed:
        """Response channels with their end that would never expire. There should be none."""
        return await self._endless("ended channels without expiry", keys.response("*"), _DROP_CHANNEL)

    async def records(self) -> Freed:
        """Records of ended generations that would never expire. There should be none."""
        return await self._endless("ended records without expiry", keys.generation("*"), _DROP_RECORD, *_ENDED)

    async def _endless(self, what: str, pattern: str, script: str, *arguments: bytes) -> Freed:
        count = size_bytes = 0
        cursor = 0
        while True:
            reply: Any = await self._valkey.scan(cursor, match=pattern, count=_PAGE)
            cursor, found = reply
            async with self._valkey.pipeline(transaction=False) as pipe:
                for name in found:
                    pipe.pttl(name)
                lives = await pipe.execute() if found else []
            for name, lives_ms in zip(found, lives, strict=True):
                freed = await self._drop(name.decode(), script, arguments=arguments) if lives_ms == -1 else 0
                count, size_bytes = count + (freed > 0), size_bytes + freed
            if not cursor:
                break
        return Freed(what, count, size_bytes)

    async def _drop(self, name: str, script: str, *beside: str, arguments: Sequence[bytes] = ()) -> int:
        """The bytes of a key that the script removes, or would; 0 where it stays."""
        size_bytes = await self._size(name)
        removed = await self._eval(script, (name, *beside), "0" if self._dry else "1", *arguments)
        return max(1, size_bytes) if removed else 0

    async def _drop_rows(self, name: str, key_of: Callable[[str], str]) -> tuple[int, int]:
        """Removes members whose key is gone from a sorted set, unless their score changes; count and bytes."""
        gone, total, usage = 0, max(1, await self._valkey.zcard(name)), await self._size(name)
        async for page in self._rows(self._valkey.zscan, name):
            scores = {member.decode(): score for member, score in page}
            for member in await self._absent([*scores], [key_of(member) for member in scores]):
                removed = self._dry or await self._eval(_DROP_ROW, [name], member, repr(scores[member]))
                gone += int(removed)
        return gone, usage * gone // total

    async def _idle(self, lane: str) -> list[bytes]:
        try:
            rows: Any = await self._valkey.xinfo_consumers(lane, keys.LANE_GROUP)
        except ResponseError:
            return []  # no lane any more, or one that nobody has read yet
        return [row["name"] for row in rows if row["pending"] == 0 and row["idle"] >= IDLE_MS]

    async def _names(self, pattern: str) -> AsyncIterator[str]:
        async for name in self._valkey.scan_iter(match=pattern, count=_PAGE):
            yield name.decode()

    async def _rows(self, scan: Callable[..., Awaitable[Any]], name: str) -> AsyncIterator[list[tuple[bytes, Any]]]:
        cursor = 0
        while True:
            cursor, page = await scan(name, cursor, count=_PAGE)
            yield list(page.items()) if isinstance(page, dict) else list(page)
            if not int(cursor):
                return

    async def _absent(self, members: Sequence[str], names: Sequence[str]) -> list[str]:
        """Those whose key is not there."""
        if not members:
            return []
        async with self._valkey.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.exists(name)
            found = await pipe.execute()
        return [member for member, there in zip(members, found, strict=True) if not there]

    async def _size(self, name: str) -> int:
        return int(await self._valkey.memory_usage(name) or 0)

    async def _eval(self, script: str, on: Sequence[str], *arguments: Any) -> Any:
        reply: Any = self._valkey.eval(script, len(on), *on, *arguments)
        return await reply


async def prune_all(valkey_url: str, cache: Mapping[str, Any], *, dry: bool) -> list[Freed]:
    """Every rule. `cache` are its effective settings. Raises StartError, RedisError and OSError."""
    client = await connect(valkey_url, start_timeout_s=_CONNECT_S)
    try:
        freed = await Pruning(client, dry=dry).run()
    finally:
        await client.aclose()
    if cache["index_folder"]:
        folder, most_ttl_s = Path(cache["index_folder"]), float(cache["most_ttl_s"])
        freed.append(await in_thread(partial(prune_index_files, folder, most_ttl_s, dry=dry)))
    return freed


def prune_index_files(folder: Path, most_ttl_s: float, *, dry: bool) -> Freed:
    """Index files of which no entry can still live, also half-written ones. Raises OSError; no folder has none."""
    count = size_bytes = 0
    before = time.time() - max(_FILE_S, most_ttl_s)
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.suffix not in (".index", ".part") or (stat := path.stat()).st_mtime >= before:
            continue
        count, size_bytes = count + 1, size_bytes + stat.st_size
        if not dry:
            path.unlink(missing_ok=True)
    return Freed("old index files", count, size_bytes)


def _context_of(member: str) -> str:
    """The key of a context whose turn runs."""
    tenant, _, digest = member.rpartition("/")
    return keys.context(tenant, digest)


def _inside(name: str, pattern: str) -> str:
    """What stands for the star."""
    before, _, after = pattern.partition("*")
    return name.removeprefix(before).removesuffix(after)
