"""Connections to Valkey, and what a server must be for Streamway to run on it."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Iterable
from typing import Any, Final

import redis.asyncio
import structlog
from redis.asyncio.connection import AbstractConnection
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
        client = _prompt(
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
    return _prompt(url, single_connection_client=True, socket_connect_timeout=2.0, socket_timeout=None)


class _PromptConnection(AbstractConnection):
    """A connection whose sends can be cancelled.

    redis-py sends under `asyncio.wait_for`, and that of Python 3.11 swallows a cancel that comes when the send has just ended:
    a loop around Valkey would then run on, and whoever waits for its end would wait for ever. It also costs a task per command.
    """

    async def send_packed_command(self, command: bytes | str | Iterable[bytes], check_health: bool = True) -> None:
        if not self.is_connected:
            await self.connect_check_health(check_health=False)
        if check_health:
            await self.check_health()  # type: ignore[no-untyped-call] # redis-py leaves it without types
        pieces = (
            [command.encode() if isinstance(command, str) else command] if isinstance(command, bytes | str) else command
        )
        try:
            async with asyncio.timeout(self.socket_timeout):
                await self._send_packed_command(pieces)
        except OSError as problem:
            await self.disconnect(nowait=True)
            if isinstance(problem, builtins.TimeoutError):
                raise TimeoutError("Timeout writing to socket") from None
            raise ConnectionError(f"Error while writing to socket: {problem}") from problem
        except BaseException:
            # Half a command may be out: nothing else can follow it.
            await self.disconnect(nowait=True)
            raise


def _prompt(url: str, **options: Any) -> Valkey:
    """A client on `_PromptConnection`s of the kind the URL names. Raises ValueError when it names none."""
    client = Valkey.from_url(url, **options)
    pool = client.connection_pool
    kind = pool.connection_class
    pool.connection_class = type(f"Prompt{kind.__name__}", (_PromptConnection, kind), {})
    return client


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
