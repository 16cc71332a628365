"""For methods that answer with bytes: messages that were put together without message objects are sent as they are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

import grpc.aio

_Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]


class SerialisedInterceptor(grpc.aio.ServerInterceptor):
    """The innermost interceptor. `methods` are full names, "/package.Service/Method", of stream to stream."""

    def __init__(self, methods: Collection[str]) -> None:
        self._methods = frozenset(methods)

    async def intercept_service(
        self, continuation: _Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or handler_call_details.method not in self._methods:
            return handler
        return grpc.stream_stream_rpc_method_handler(handler.stream_stream, handler.request_deserializer, None)
