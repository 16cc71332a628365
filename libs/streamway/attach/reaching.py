"""Waiting for a worker that can't be reached, and knowing when there is nothing to wait for.

A cut network may be back in a moment, and the worker still has everything. A process that has died refuses connections, since
its machine answers for it; what listens at its address later is another life, which has nothing of it.
"""

from __future__ import annotations

import asyncio
from typing import Final

import grpc.aio

from streamway.runtime.tasks import TaskScope

_LOOK_S: Final = 0.05
_ANSWER_S: Final = 1.0


async def reached(
    channel: grpc.aio.Channel, address: str, scope: TaskScope, *, until: float, refused_s: float | None
) -> bool:
    """Waits until the channel to `address`, "host:port", is connected.

    False: it is not by `until`, on the loop's clock, or each connection was refused for `refused_s`. None: that says nothing.
    """
    try:
        async with asyncio.timeout_at(until) as limit:
            watch = scope.spawn(_end_where_refused(limit, address, refused_s), "refused") if refused_s else None
            try:
                await channel.channel_ready()
            finally:
                if watch is not None:
                    watch.cancel()
    except TimeoutError:
        return False
    return True


async def _end_where_refused(limit: asyncio.Timeout, address: str, refused_s: float) -> None:
    loop = asyncio.get_running_loop()
    since: float | None = None
    while True:
        await asyncio.sleep(_LOOK_S)
        looked = loop.time()
        if not await refuses(address):
            since = None
            continue
        since = looked if since is None else since
        if loop.time() - since >= refused_s:
            limit.reschedule(loop.time())
            return


async def refuses(address: str) -> bool:
    """Whether nothing listens at "host:port". False also where it can't be told."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_ANSWER_S):
            transport, _ = await asyncio.get_running_loop().create_connection(
                asyncio.Protocol, host.strip("[]"), int(port)
            )
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError, ValueError):
        return False
    transport.abort()
    return False
