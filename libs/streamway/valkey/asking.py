"""Several commands in one round trip, over a raw link where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.exceptions import ConnectionError, ResponseError

from streamway.valkey.connection import Valkey
from streamway.valkey.link import Link
from streamway.valkey.packing import pack
from streamway.valkey.session import Argument, LinkLost, StoreRefused


async def ask(valkey: Valkey, link: Link | None, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
    """The replies, in order. Over the raw link they cost a fourth of the CPU; while it is down redis-py asks.

    Nothing is sent twice: when the link breaks in the middle, which may be after the store has done it, that is an error.
    Replies are as redis-py has them for `hget`, `hset` and their like; those of commands that it reshapes, such as XREADGROUP,
    may be in either form. Raises RedisError or OSError.
    """
    if not commands:
        return []
    session = link.current if link is not None else None
    if session is None:
        async with valkey.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            return list(await pipe.execute())
    try:
        return await session.call_group(b"".join(pack(command) for command in commands), len(commands))
    except LinkLost:
        raise ConnectionError("the link to the store broke before the replies came") from None
    except StoreRefused as refused:
        raise ResponseError(str(refused)) from None
