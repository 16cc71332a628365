"""Connections to Valkey, and what a server must be for Streamway to run on it."""

from __future__ import annotations

from typing import Final

import redis.asyncio
import structlog
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import AuthenticationError, ConnectionError, RedisError, TimeoutError
from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_random_exponential

from streamway.runtime.start import StartError

Valkey = redis.asyncio.Redis

_log = structlog.get_logger("valkey")
_SAFE_POLICY: Final = "noeviction"
_LEAST_VERSION: Final = (6, 2)


async def connect(url: str, *, start_timeout_s: float = 15.0, command_timeout_s: float = 5.0) -> Valkey:
    """Connects and checks the server; waits up to `start_timeout_s` for one that is still starting.

    Ordinary commands run on this client's pool and are retried once on a broken connection. Blocking reads must use
    `blocking_client` instead. Raises StartError when nothing answers, the password is wrong, or keys may be evicted.
    """
    try:
        client = Valkey.from_url(
            url,
            socket_timeout=command_timeout_s,
            socket_connect_timeout=2.0,
            retry=Retry(ExponentialBackoff(cap=0.2, base=0.02), 1),
            retry_on_error=[ConnectionError],
            health_check_interval=15,
        )
    except ValueError:
        raise StartError(
            f"STREAMWAY_VALKEY_URL {_shown(url)} is not redis://host:port/db, rediss://… or unix:///path"
        ) from None
    try:
        async for attempt in AsyncRetrying(
            retry=retry_if_exception(_may_pass),
            wait=wait_random_exponential(multiplier=0.05, max=1.0),
            stop=stop_after_delay(start_timeout_s),
            reraise=True,
        ):
            with attempt:
                await client.ping()
        await _check(client)
    except (RedisError, OSError) as problem:
        await client.aclose()
        if _refused(problem):
            raise StartError(f"{_shown(url)} refuses the password; check STREAMWAY_VALKEY_URL") from None
        raise StartError(
            f"Valkey does not answer at {_shown(url)} ({type(problem).__name__}); start it or set STREAMWAY_VALKEY_URL"
        ) from None
    except StartError:
        await client.aclose()
        raise
    return client


def blocking_client(url: str) -> Valkey:
    """A client with one connection and no read timeout, for the one blocking reader of a process."""
    return Valkey.from_url(url, single_connection_client=True, socket_connect_timeout=2.0, socket_timeout=None)


async def _check(client: Valkey) -> None:
    """Refuses a server that may drop keys by itself, since tasks would be lost, or that is too old for NOMKSTREAM."""
    info = await client.info("server")
    version = tuple(int(part) for part in str(info.get("redis_version", "0.0")).split(".")[:2])
    if version < _LEAST_VERSION:
        raise StartError(f"the server speaks Redis {info.get('redis_version')}; 6.2 or newer is needed")
    try:
        policy = (await client.config_get("maxmemory-policy")).get("maxmemory-policy", _SAFE_POLICY)
    except RedisError:
        _log.warning(
            "eviction_policy_unknown", hint="CONFIG GET is not allowed; make sure maxmemory-policy is noeviction"
        )
        return
    if policy != _SAFE_POLICY:
        raise StartError(f"the server's maxmemory-policy is {policy}, which may drop tasks; set it to {_SAFE_POLICY}")


def _may_pass(problem: BaseException) -> bool:
    """True for what waiting may cure."""
    return isinstance(problem, ConnectionError | TimeoutError) and not _refused(problem)


def _refused(problem: BaseException) -> bool:
    """True for a missing or wrong password, which redis-py counts among, and hides behind, connection errors."""
    return isinstance(problem, AuthenticationError) or isinstance(problem.__cause__, AuthenticationError)


def _shown(url: str) -> str:
    """The URL without its password, which may stand before an `@` or in the query."""
    scheme, _, rest = url.partition("?")[0].partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if rest else scheme.rpartition("@")[2]
