"""The quota of a tenant in the store, shared by all routers: `account` as scripts, on the keys of one tenant.

sw:quota:{acme}                hash   "requests", "tokens", "requests/<model>", … → "level at-ms"
sw:quota:{acme}:slots          zset   reservation → when its lease ends, ms
sw:quota:{acme}:slots:<model>  zset   the same of one model

Time is the store's, so routers whose clocks differ agree. What a router holds and does not renew expires: a killed one leaves
nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from streamway.quota.limits import SLOT_RETRY_S, Demand, Kind, Level, Refusal, Verdict
from streamway.tenancy import Quota
from streamway.valkey import keys
from streamway.valkey.script import Script
from streamway.valkey.session import Argument, Reply, Session

_NONE: Final = -1

# KEYS: buckets, slots of the tenant, slots of the model. A field holds "level at"; where there is none the bucket is full. A
# clock that went back fills nothing, and goes on from there; `clean` shortens leases that then would never end.
_COMMON: Final = """
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local function write(field, level)
  redis.call('HSET', KEYS[1], field, string.format('%.6f %.0f', level, now))
end
local function read(field, limit)
  local stored = redis.call('HGET', KEYS[1], field)
  if not stored then return limit end
  local level, at = string.match(stored, '^(%S+) (%S+)$')
  level, at = tonumber(level), tonumber(at)
  if at > now then
    write(field, level)
    at = now
  end
  return math.min(limit, level + (now - at) * limit / 60000)
end
local function give(field, limit, amount)
  if limit < 0 then return end
  local level = math.min(limit, read(field, limit) + amount)
  write(field, level)
  -- A bucket that would be full again need not be kept; one in debt is kept until it has paid.
  local full = math.ceil((limit - level) * 60000 / limit) + 60000
  if redis.call('PTTL', KEYS[1]) < full then redis.call('PEXPIRE', KEYS[1], full) end
end
local function clean(slots, lease)
  redis.call('ZREMRANGEBYSCORE', slots, '-inf', now)
  local beyond = redis.call('ZRANGEBYSCORE', slots, '(' .. string.format('%.0f', now + lease), '+inf')
  for _, id in ipairs(beyond) do redis.call('ZADD', slots, now + lease, id) end
end
local function hold(slots, id, lease)
  redis.call('ZADD', slots, now + lease, id)
  redis.call('PEXPIRE', slots, lease * 2)
end
"""

# ARGV: id, lease in ms, most of what is left for one request, tokens, model, then slots, requests and tokens of the tenant
# and of the model; -1: no limit. Reply: what ran out ('' nothing), whose (1 tenant, 2 model), ms to wait (-1: for ever), and
# the four levels ('' no limit).
_RESERVE: Final = Script(
    _COMMON
    + """
local id, lease, share, tokens = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local fields = {'', '/' .. ARGV[5]}
local limits = {{}, {}}
for scope = 1, 2 do
  for i = 1, 3 do limits[scope][i] = tonumber(ARGV[5 + (scope - 1) * 3 + i]) end
  clean(KEYS[scope + 1], lease)
end
local function answer(kind, scope, wait)
  local reply = {kind, scope, math.ceil(wait)}
  for s = 1, 2 do
    for i, name in ipairs({'requests', 'tokens'}) do
      local limit = limits[s][i + 1]
      reply[#reply + 1] = limit < 0 and '' or string.format('%.6f', read(name .. fields[s], limit))
    end
  end
  return reply
end
if redis.call('ZSCORE', KEYS[2], id) then return answer('', 0, 0) end
for s = 1, 2 do
  local limit = limits[s][3]
  if limit >= 0 and tokens > share * limit then return answer('tokens_per_minute', s, -1) end
end
for s = 1, 2 do
  local slots, requests, most = limits[s][1], limits[s][2], limits[s][3]
  if slots >= 0 and redis.call('ZCARD', KEYS[s + 1]) >= slots then return answer('concurrency', s, 0) end
  if requests >= 0 then
    local level = read('requests' .. fields[s], requests)
    if level < 1 then return answer('requests_per_minute', s, (1 - level) * 60000 / requests) end
  end
  if most >= 0 then
    local level = read('tokens' .. fields[s], most)
    if tokens > share * level then return answer('tokens_per_minute', s, (tokens / share - level) * 60000 / most) end
  end
end
for s = 1, 2 do
  hold(KEYS[s + 1], id, lease)
  give('requests' .. fields[s], limits[s][2], -1)
  give('tokens' .. fields[s], limits[s][3], -tokens)
end
return answer('', 0, 0)
"""
)

# ARGV: id, requests and tokens to give back, model, then requests and tokens a minute of the tenant and of the model.
_SETTLE: Final = Script(
    _COMMON
    + """
local until_ms = redis.call('ZSCORE', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
if not until_ms or tonumber(until_ms) <= now then return 0 end
for s = 1, 2 do
  local suffix = s == 1 and '' or '/' .. ARGV[4]
  give('requests' .. suffix, tonumber(ARGV[3 + s * 2]), tonumber(ARGV[2]))
  give('tokens' .. suffix, tonumber(ARGV[4 + s * 2]), tonumber(ARGV[3]))
end
return 1
"""
)

# ARGV: lease in ms, slots of the tenant and of the model, then ids. Reply: how many have no slot any more.
_RENEW: Final = Script(
    _COMMON
    + """
local lease, lost = tonumber(ARGV[1]), 0
for s = 1, 2 do
  local slots, limit = KEYS[s + 1], tonumber(ARGV[s + 1])
  clean(slots, lease)
  for i = 4, #ARGV do
    if redis.call('ZSCORE', slots, ARGV[i]) or limit < 0 or redis.call('ZCARD', slots) < limit then
      hold(slots, ARGV[i], lease)
    elseif s == 1 then
      lost = lost + 1
    end
  end
end
return lost
"""
)


async def reserve(session: Session, demand: Demand, lease_ms: int, share: float) -> Verdict:
    """Takes a slot, a request and the estimated tokens in one step, or nothing. The same id again changes nothing.

    Raises LinkLost or StoreRefused.
    """
    limits: list[Argument] = []
    for quota in demand.quotas:
        limits += [_number(quota.concurrency), _number(quota.requests_per_minute), _number(quota.tokens_per_minute)]
    arguments = [demand.id, lease_ms, f"{share:.6f}", demand.tokens, demand.model, *limits]
    kind, scope, wait_ms, *levels = await _RESERVE.call(session, _keys(demand), *arguments)
    refusal = None
    if kind:
        retry_s = None if wait_ms < 0 else wait_ms / 1000 or SLOT_RETRY_S
        refusal = Refusal(Kind(kind.decode()), scope == 2, retry_s)
    left = [float(level) if level else None for level in levels]
    return Verdict(refusal, (Level(left[0], left[1]), Level(left[2], left[3])))


def send_settle(
    session: Session, demand: Demand, requests_back: int, tokens_back: int, on_reply: Callable[[Reply], None]
) -> None:
    """Frees the slot and gives back what was not used (below zero: takes more), once. Reply 0: ended before, or expired."""
    limits = [_number(limit) for quota in demand.quotas for limit in _a_minute(quota)]
    arguments: list[Argument] = [demand.id, requests_back, tokens_back, demand.model, *limits]
    _SETTLE.send(session, _keys(demand), arguments, on_reply)


async def renew(session: Session, demands: Sequence[Demand], lease_ms: int) -> int:
    """Lengthens the leases of one tenant's reservations for one model. What has expired takes a slot again where there is room;
    how many found none is returned. Raises LinkLost or StoreRefused."""
    first = demands[0]
    limits = [_number(quota.concurrency) for quota in first.quotas]
    reply = await _RENEW.call(session, _keys(first), lease_ms, *limits, *(demand.id for demand in demands))
    return int(reply)


def _keys(demand: Demand) -> tuple[str, str, str]:
    return (
        keys.quota(demand.tenant),
        keys.quota_slots(demand.tenant),
        keys.quota_slots(demand.tenant, demand.model),
    )


def _a_minute(quota: Quota) -> tuple[int | None, int | None]:
    return quota.requests_per_minute, quota.tokens_per_minute


def _number(limit: int | None) -> int:
    return _NONE if limit is None else limit
