"""Every call has an owner.

Leaving `async for` early does not cancel a grpc.aio stream, even when the call object is collected: the server would go on
for nobody.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import grpc

_C = TypeVar("_C", bound=Any)

# Codes of a call that was not answered: another process may answer it.
SILENT: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


@asynccontextmanager
async def own_call(call: _C) -> AsyncIterator[_C]:
    """Gives the call, and cancels it on the way out unless it has ended."""
    try:
        yield call
    finally:
        if not call.done():
            call.cancel()
