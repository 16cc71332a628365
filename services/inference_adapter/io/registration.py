"""A worker's entry in Valkey: what routers know of it."""

from __future__ import annotations

import structlog
from redis.exceptions import RedisError
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_exponential_jitter

from streamway.runtime.process import StartError
from streamway.valkey.leases import Lease

_log = structlog.get_logger("adapter")

# How long registering may take before the start is given up.
_REGISTER_S = 10.0


class Registration:
    """One worker's lease."""

    def __init__(self, lease: Lease, worker: str) -> None:
        self._lease = lease
        self._worker = worker

    async def enter(self) -> None:
        """Registers. Raises StartError when the store does not take it for ten seconds."""
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type((RedisError, OSError)),
                wait=wait_exponential_jitter(multiplier=0.05, max=1.0),
                stop=stop_after_delay(_REGISTER_S),
                reraise=True,
            ):
                with attempt:
                    await self._lease.renew()
        except (RedisError, OSError) as problem:
            raise StartError(
                f"worker {self._worker} cannot register in Valkey ({type(problem).__name__}); see its log"
            ) from None

    async def hold(self) -> None:
        """Renews until cancelled."""
        await self._lease.hold()

    async def tell(self) -> None:
        """Renews now: something has changed that routers should know at once."""
        try:
            await self._lease.renew()
        except (RedisError, OSError) as problem:
            _log.warning("drain_not_announced", problem=type(problem).__name__)

    async def leave(self) -> None:
        """Ends the lease."""
        await self._lease.release()
