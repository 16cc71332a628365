"""The steps that must be one step in the store: each touches one key, the channel. Lua, for Valkey 7.2+ and Redis 6.2+.

Everything else the journal does is a plain command, because the order of entry ids already fences it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from streamway.journal.cursor import Cursor
from streamway.journal.entries import Entry, attempt_of
from streamway.journal.line import Line
from streamway.valkey import keys
from streamway.valkey.script import Script
from streamway.valkey.session import Argument, Reply, Session

# ARGV: time to live in ms, then id, kind, first and payload of each entry. 1: written; 0: the channel was there.
ACCEPT: Final = Script("""
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
for i = 2, #ARGV, 4 do
  redis.call('XADD', KEYS[1], ARGV[i], 'kind', ARGV[i + 1], 'first', ARGV[i + 2], 'payload', ARGV[i + 3])
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
""")

# ARGV: epoch, its attempt, ref, worker, payload, '1' when asked again, time to live in ms, and the payload of an `end` to
# write at once, or ''. Epochs stay below 2^53, so Lua's numbers hold them.
BEGIN: Final = Script("""
local function field(entry, name)
  for i = 1, #entry[2], 2 do
    if entry[2][i] == name then return entry[2][i + 1] end
  end
  return ''
end
local tail = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if not tail then return {'gone'} end
if field(tail, 'kind') == 'end' then return {'done'} end
local epoch, position = string.match(tail[1], '^(%d+)-(%d+)$')
local line, from, begin = '0:1', '', nil
if epoch ~= '0' then
  begin = redis.call('XRANGE', KEYS[1], epoch, epoch, 'COUNT', 1)[1]
  line, from = field(begin, 'line'), field(begin, 'worker')
end
if epoch == ARGV[1] then
  return {'go', field(begin, 'first'), line}
end
if math.floor(tonumber(epoch) / 1048576) >= tonumber(ARGV[2]) then
  return {'stale', field(begin, 'ref')}
end
if ARGV[6] == '1' then return {'lost'} end
local start = string.format('%.0f', tonumber(position) + 1)
line = line .. ',' .. ARGV[1] .. ':' .. start
redis.call('XADD', KEYS[1], 'NOMKSTREAM', ARGV[1] .. '-' .. start, 'kind', 'begin', 'first', start, 'payload', ARGV[5],
  'ref', ARGV[3], 'worker', ARGV[4], 'line', line, 'from', from)
if ARGV[8] ~= '' then
  local last = string.format('%.0f', tonumber(start) + 1)
  redis.call('XADD', KEYS[1], 'NOMKSTREAM', ARGV[1] .. '-' .. last, 'kind', 'end', 'first', last, 'payload', ARGV[8])
end
redis.call('PEXPIRE', KEYS[1], ARGV[7])
return {'appended', start, line}
""")

# ARGV: the id the tail must have, then for each entry its id, the number of its fields and values, and those.
# 1: written; 0: the tail is another one.
RESTORE: Final = Script("""
local tail = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if not tail or tail[1] ~= ARGV[1] then return 0 end
local i = 2
while i <= #ARGV do
  local count = tonumber(ARGV[i + 1])
  redis.call('XADD', KEYS[1], 'NOMKSTREAM', ARGV[i], unpack(ARGV, i + 2, i + 1 + count))
  i = i + 2 + count
end
return 1
""")


async def accept(session: Session, generation: str, entries: Sequence[Entry], ttl_ms: int) -> bool:
    """Opens the channel with what was written before any engine call: `accepted` at position 1, and, for an answer that is
    known already, all of it. False: the channel was there, from an earlier call whose reply was lost; nothing changed.

    Raises LinkLost (then ask again) or StoreRefused.
    """
    arguments: list[Argument] = [ttl_ms]
    for entry in entries:
        arguments += [str(entry.id), entry.kind.value, entry.first, entry.payload]
    return bool(await ACCEPT.call(session, keys.response(generation), *arguments))


@dataclass(frozen=True, slots=True)
class Began:
    """The epoch may write from `start` on, along `line`."""

    start: int
    line: Line


@dataclass(frozen=True, slots=True)
class Done:
    """The generation has ended."""


@dataclass(frozen=True, slots=True)
class Gone:
    """There is no channel: it expired, or the store lost it."""


@dataclass(frozen=True, slots=True)
class Stale:
    """An attempt as high or higher has begun, for the task copy `ref`."""

    ref: str


@dataclass(frozen=True, slots=True)
class NeverBegan:
    """Asked again, and the store does not have this begin: it never came, or was lost. The epoch must not be used."""


BeginAnswer = Began | Done | Gone | Stale | NeverBegan


async def begin(
    session: Session,
    generation: str,
    epoch: int,
    ref: str,
    worker: str,
    payload: bytes,
    *,
    again: bool,
    ttl_ms: int,
    end_payload: bytes = b"",
) -> BeginAnswer:
    """Begins one engine call; this fences every earlier one. With `end_payload` also ends the generation in the same step.

    `again` is set when the reply to the same call was lost: then nothing is written, because a reader may have seen the
    first begin at another position before the store lost it. Raises LinkLost or StoreRefused.
    """
    key = keys.response(generation)
    flag = "1" if again else "0"
    reply = await BEGIN.call(session, key, epoch, attempt_of(epoch), ref, worker, payload, flag, ttl_ms, end_payload)
    match reply[0]:
        case b"appended" | b"go":
            return Began(int(reply[1]), Line.parse(reply[2].decode()))
        case b"stale":
            return Stale(reply[1].decode())
        case b"done":
            return Done()
        case b"gone":
            return Gone()
        case _:
            return NeverBegan()


def send_restore(
    session: Session, generation: str, expected: Cursor, entries: Sequence[Entry], on_reply: Callable[[Reply], None]
) -> None:
    """Writes entries the store has lost, in order, if its newest entry still is `expected`."""
    RESTORE.send(session, keys.response(generation), _restoring(expected, entries), on_reply)


async def restore(session: Session, generation: str, expected: Cursor, entries: Sequence[Entry]) -> bool:
    """The same, waiting for the answer: whether they were written. Raises LinkLost or StoreRefused."""
    return bool(await RESTORE.call(session, keys.response(generation), *_restoring(expected, entries)))


def _restoring(expected: Cursor, entries: Sequence[Entry]) -> list[Argument]:
    arguments: list[Argument] = [str(expected)]
    for entry in entries:
        fields = entry.fields()
        arguments += [str(entry.id), len(fields), *fields]
    return arguments
