"""What a tenant has left, read beside the store's script and changing nothing."""

from __future__ import annotations

from dataclasses import dataclass

from streamway.quota.bucket import Bucket
from streamway.tenancy import Quota
from streamway.valkey import keys
from streamway.valkey.connection import Valkey


@dataclass(frozen=True, slots=True)
class Usage:
    """Of a tenant, or of one of its models. `slots` are taken now; the others are left in the buckets, below 0 while there is
    debt. None: no limit, and nothing is counted."""

    slots: int | None
    requests_left: float | None
    tokens_left: float | None


def level(stored: bytes | None, limit: int, now_ms: float) -> float:
    """What is left in a bucket that the store holds as "level at-ms". Where there is none, or no bucket, it is full."""
    try:
        amount, _, at_ms = (stored or b"").partition(b" ")
        bucket = Bucket(float(amount), float(at_ms))
    except ValueError:
        return float(limit)
    return bucket.refill(limit, now_ms)


async def read_usage(valkey: Valkey, asked: list[tuple[str, str, Quota]]) -> list[Usage]:
    """For each (tenant, model, quota); model "" is the tenant's own. By the store's clock. Raises RedisError."""
    async with valkey.pipeline(transaction=False) as pipe:
        pipe.time()
        for tenant, model, _ in asked:
            suffix = f"/{model}" if model else ""
            pipe.hmget(keys.quota(tenant), f"requests{suffix}", f"tokens{suffix}")
        (seconds, micros), *buckets = await pipe.execute()
    now_ms = seconds * 1000 + micros / 1000
    async with valkey.pipeline(transaction=False) as pipe:
        for tenant, model, _ in asked:
            pipe.zcount(keys.quota_slots(tenant, model), f"({now_ms:.0f}", "+inf")
        slots = await pipe.execute()
    return [
        Usage(
            None if quota.concurrency is None else count,
            None if quota.requests_per_minute is None else level(requests, quota.requests_per_minute, now_ms),
            None if quota.tokens_per_minute is None else level(tokens, quota.tokens_per_minute, now_ms),
        )
        for (_, _, quota), (requests, tokens), count in zip(asked, buckets, slots, strict=True)
    ]
