"""How rows leave a tenant's index of the cache: the cache does it, and whoever clears up behind caches that are gone."""

from __future__ import annotations

from typing import Final

from streamway.valkey.script import Script

# Field of `keys.cache_rows` with the bytes of all.
TOTAL: Final = b"#"

# KEYS: rows, used. ARGV: entries. Gives the total that is left, then each that was there.
REMOVE: Final = Script("""
local total = tonumber(redis.call('HGET', KEYS[1], '#') or 0)
local told = {0}
for _, id in ipairs(ARGV) do
  local row = redis.call('HGET', KEYS[1], id)
  if row then
    redis.call('HDEL', KEYS[1], id)
    total = total - tonumber(string.match(row, '^%d+') or 0)
    told[#told + 1] = id
  end
  redis.call('ZREM', KEYS[2], id)
end
if #told > 1 then redis.call('HSET', KEYS[1], '#', string.format('%d', total)) end
told[1] = total
return told
""")
