"""Kept contexts in the store, where every router finds them.

    sw:context:{tenant/0f3a…}        hash   last   the generation of its last turn: by it a router knows whether it has the same
                                            open   the generation that runs now, with at (Unix ms), use ("start" or "append"),
                                                   new (its messages, packed) and by (who has asked for it, and not given it up):
                                                   the first who sees its end adds the turn
    sw:context:{tenant/0f3a…}:text   list   the packed segments
    sw:contexts:{tenant}             zset   digest → Unix ms of the last turn: the oldest beyond a tenant's number are deleted
    sw:contexts-running              zset   tenant/digest → when somebody should look for the end of its turn

Each step is one script on the keys of one context. Names are digests: an id may be anything, and is nobody else's business.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from services.router.core.context_table import Name
from services.router.io.journal import Journal
from streamway.runtime.clock import Clock
from streamway.valkey import keys
from streamway.valkey.script import Script
from streamway.valkey.session import Reply, Session

# ARGV: generation, use, its packed messages, time to live in ms, the last turn that the router has in memory, who asks.
# Reply: state, then: busy: generation, its age in ms; ok: last turn, segments unless they are known.
_BEGIN: Final = Script("""
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local known = redis.call('HMGET', KEYS[1], 'open', 'last', 'at', 'by')
local open, last = known[1], known[2]
if last == ARGV[1] then return {'done'} end
if open and open ~= ARGV[1] then return {'busy', open, now - tonumber(known[3] or now)} end
if ARGV[2] == 'append' and not last then return {'none'} end
local state = 'begun'
if open then state = 'again' else
  redis.call('HSET', KEYS[1], 'open', ARGV[1], 'use', ARGV[2], 'new', ARGV[3], 'at', now)
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
end
redis.call('HSET', KEYS[1], 'by', (open and known[4] or '') .. ARGV[6] .. ' ')
if ARGV[2] == 'start' or last == ARGV[5] then return {state, last or ''} end
return {state, last, redis.call('LRANGE', KEYS[2], 0, -1)}
""")
# ARGV: the last turn that the router has in memory. Reply: open, use, new, age in ms, last, segments unless they are known.
_LOOK: Final = Script("""
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local known = redis.call('HMGET', KEYS[1], 'open', 'use', 'new', 'at', 'last')
if not known[1] then return {} end
local told = {known[1], known[2], known[3], now - tonumber(known[4] or now), known[5] or ''}
if known[2] == 'append' and known[5] ~= ARGV[1] then told[6] = redis.call('LRANGE', KEYS[2], 0, -1) end
return told
""")
# ARGV: generation, the last turn before it, "start", "add" or "anew", time to live in ms, segments.
# Reply: 1, or 0: somebody was first.
_COMMIT: Final = Script("""
local known = redis.call('HMGET', KEYS[1], 'open', 'last')
if known[1] ~= ARGV[1] or (known[2] or '') ~= ARGV[2] then return 0 end
if ARGV[3] == 'start' then redis.call('DEL', KEYS[2]) elseif ARGV[3] == 'anew' then redis.call('RPOP', KEYS[2]) end
redis.call('RPUSH', KEYS[2], unpack(ARGV, 5))
redis.call('HSET', KEYS[1], 'last', ARGV[1])
redis.call('HDEL', KEYS[1], 'open', 'use', 'new', 'at', 'by')
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return 1
""")
# ARGV: generation, who gives it up; '': it has ended, for all. Its turn comes to nothing; what was kept before stays. While
# somebody else has asked for the same generation it may run.
_ROLL_BACK: Final = Script("""
local known = redis.call('HMGET', KEYS[1], 'open', 'by')
if known[1] ~= ARGV[1] then return 0 end
local left = ''
if ARGV[2] ~= '' then
  for one in string.gmatch(known[2] or '', '%S+') do if one ~= ARGV[2] then left = left .. one .. ' ' end end
  redis.call('HSET', KEYS[1], 'by', left)
end
if left ~= '' then return 0 end
redis.call('HDEL', KEYS[1], 'open', 'use', 'new', 'at', 'by')
return 1
""")
# ARGV: generation. Deletes a context whose turn that is, and no other.
_DISCARD: Final = Script("""
if redis.call('HGET', KEYS[1], 'open') ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1], KEYS[2])
""")
# How long after its beginning somebody looks for the end of a turn whose router may be gone.
_LOOK_AFTER_MS: Final = 60_000


class Turn(NamedTuple):
    """One request of a context. `id` is the client's name for that, `by` names whoever asks."""

    name: Name
    id: str
    generation: str
    by: str


class Begun(NamedTuple):
    """`state`: "begun"; "again": this generation has begun before; "done": it has ended; "none": nothing is kept; "busy": `other`
    runs, for `age_ms`. `last` is the turn before it, `segments` None where the router has them."""

    state: str
    last: str = ""
    segments: list[bytes] | None = None
    other: str = ""
    age_ms: int = 0


class Running(NamedTuple):
    """A turn whose end is not noted. `start`: it begins a context; `new` are its packed messages."""

    generation: str
    start: bool
    new: bytes
    age_ms: int
    last: str
    segments: list[bytes] | None


def digest_of(id_: str) -> str:
    """What a context is called in the store."""
    return hashlib.sha256(id_.encode()).hexdigest()[:32]


class ContextStore:
    """See the module. Every method raises StoreUnavailable. `most`: contexts of one tenant."""

    def __init__(self, journal: Journal, clock: Clock, *, keep_s: float, most: int) -> None:
        self._journal = journal
        self._clock = clock
        self._keep_ms = int(keep_s * 1000)
        self._most = most

    async def begin(self, turn: Turn, *, start: bool, new: bytes, known: str) -> Begun:
        """A turn begins, unless another one runs. After StoreUnavailable it may have: it must be rolled back."""
        name, use = turn.name, "start" if start else "append"

        async def steps(session: Session) -> Any:
            arguments = (turn.generation, use, new, self._keep_ms, known, turn.by)
            told = await _BEGIN.call(session, _keys(name), *arguments)
            if told[0] == b"begun":
                session.send(("ZADD", keys.contexts_running(), self._later_ms(), _member(name)), _ignore)
            return told

        told = await self._journal.steps(steps)
        state = told[0].decode()
        if state == "busy":
            return Begun(state, other=told[1].decode(), age_ms=int(told[2]))
        last = told[1].decode() if len(told) > 1 else ""
        return Begun(state, last, list(told[2]) if len(told) > 2 else None)

    async def running(self, name: Name, known: str) -> Running | None:
        """The turn that runs, as far as is noted. None: there is none."""

        async def steps(session: Session) -> Any:
            return await _LOOK.call(session, _keys(name), known)

        told = await self._journal.steps(steps)
        if not told:
            return None
        generation, use, new, age_ms, last, *segments = told
        return Running(
            generation.decode(),
            use == b"start",
            new,
            int(age_ms),
            last.decode(),
            list(segments[0]) if segments else None,
        )

    async def commit(self, name: Name, generation: str, last: str, how: str, segments: Sequence[bytes]) -> bool:
        """Adds a turn: "start" is all there is, "anew" stands for the last segment too. False: its end is noted."""

        async def steps(session: Session) -> bool:
            done = bool(await _COMMIT.call(session, _keys(name), generation, last, how, self._keep_ms, *segments))
            await self._index(session, name)
            return done

        return await self._journal.steps(steps)

    async def roll_back(self, name: Name, generation: str, by: str = "") -> bool:
        """A turn comes to nothing. `by`: for who asked so; False: somebody else has asked for it too, or it is noted already."""

        async def steps(session: Session) -> bool:
            done = bool(await _ROLL_BACK.call(session, _keys(name), generation, by))
            if done:
                session.send(("ZREM", keys.contexts_running(), _member(name)), _ignore)
            return done

        return await self._journal.steps(steps)

    async def delete(self, name: Name) -> bool:
        """False: there was none."""

        async def steps(session: Session) -> bool:
            session.send(("ZREM", keys.contexts_running(), _member(name)), _ignore)
            session.send(("ZREM", keys.contexts(name.tenant), name.digest), _ignore)
            return bool(await session.call("DEL", *_keys(name)))

        return await self._journal.steps(steps)

    async def discard(self, name: Name, generation: str) -> bool:
        """Deletes a context that this turn cannot be added to, or be answered with. False: it is not that turn any more."""

        async def steps(session: Session) -> bool:
            return bool(await _DISCARD.call(session, _keys(name), generation))

        return await self._journal.steps(steps)

    async def overdue(self, most: int) -> list[Name]:
        """Contexts whose turn began a while ago, the longest first. They are not told again for as long as that."""

        async def steps(session: Session) -> list[bytes]:
            now = int(self._clock.unix() * 1000)
            found: list[bytes] = await session.call(
                "ZRANGEBYSCORE", keys.contexts_running(), "-inf", now, "LIMIT", 0, most
            )
            for member in found:
                session.send(("ZADD", keys.contexts_running(), "XX", self._later_ms(), member), _ignore)
            return found

        members = await self._journal.steps(steps)
        return [Name(*member.decode().rsplit("/", 1)) for member in members]

    async def settled(self, name: Name) -> None:
        """Nobody has to look for the end of its turn any more."""

        async def steps(session: Session) -> None:
            session.send(("ZREM", keys.contexts_running(), _member(name)), _ignore)

        await self._journal.steps(steps)

    async def _index(self, session: Session, name: Name) -> None:
        """Notes a turn, and deletes what is too much of the tenant's, the longest unused first."""
        now, index = int(self._clock.unix() * 1000), keys.contexts(name.tenant)
        session.send(("ZREM", keys.contexts_running(), _member(name)), _ignore)
        session.send(("ZADD", index, now, name.digest), _ignore)
        session.send(("PEXPIRE", index, self._keep_ms), _ignore)
        session.send(("ZREMRANGEBYSCORE", index, "-inf", now - self._keep_ms), _ignore)
        count = int(await session.call("ZCARD", index))
        if count > self._most:
            for digest, _ in _pairs(await session.call("ZPOPMIN", index, count - self._most)):
                session.send(("DEL", *_keys(Name(name.tenant, digest.decode()))), _ignore)

    def _later_ms(self) -> int:
        return int(self._clock.unix() * 1000) + _LOOK_AFTER_MS


def _pairs(reply: Sequence[Any]) -> list[tuple[bytes, Any]]:
    """ZPOPMIN answers flat in RESP2."""
    return list(zip(reply[::2], reply[1::2], strict=True))


def _keys(name: Name) -> tuple[str, str]:
    return keys.context(*name), keys.context_text(*name)


def _member(name: Name) -> str:
    return f"{name.tenant}/{name.digest}"


def _ignore(_: Reply) -> None:
    """For replies that change nothing."""
