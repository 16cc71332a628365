"""One service process: uvloop, one owner of signals, ordered drain."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import structlog
import uvloop

from streamway.runtime import collector
from streamway.runtime.start import StartError

__all__ = ["Service", "StartError", "run"]

_log = structlog.get_logger("runtime")


class Service(Protocol):
    """What a service's `app.py` builds."""

    async def start(self) -> None:
        """Starts everything in order; raises `StartError` when it cannot, after unwinding."""
        ...

    async def failed(self) -> None:
        """Returns or raises when a part that must run has ended."""
        ...

    async def drain(self) -> None:
        """Stops admitting and lets running work end, within the service's own grace."""
        ...

    async def close(self) -> None:
        """Releases everything."""
        ...


def run(build: Callable[[], Awaitable[Service] | Service]) -> None:
    """Runs a service until SIGTERM or SIGINT, then drains it. A second signal exits at once with 128 + n.

    Exit codes: 0 after a drain, 2 when the start was refused, 1 when a part failed.
    """
    try:
        code = uvloop.run(_main(build))
    except StartError as problem:
        print(f"cannot start: {problem}", file=sys.stderr, flush=True)
        sys.exit(2)
    sys.exit(code)


async def _main(build: Callable[[], Awaitable[Service] | Service]) -> int:
    stop: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        if stop.done():
            os._exit(128 + number)
        stop.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)

    made = build()
    service = await made if isinstance(made, Awaitable) else made
    code = 0
    try:
        if not await _until(service.start(), stop):
            return 0
        collector.settle()
        watch = loop.create_task(_watch(service), name="watch")
        await _first(watch, stop)
        if watch.done():
            code = 1
            _log.error("service_failed", exc_info=watch.exception())
        else:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch
            await service.drain()
    finally:
        await service.close()
    return code


async def _watch(service: Service) -> None:
    await service.failed()


async def _until(work: Coroutine[Any, Any, None], stop: asyncio.Future[int]) -> bool:
    """Runs `work` unless `stop` comes first; True when it was completed."""
    task = asyncio.get_running_loop().create_task(work)
    await _first(task, stop)
    if not task.done():
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return False
    await task
    return True


async def _first(*waiting: asyncio.Future[Any]) -> None:
    """Returns when one of them is done."""
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
