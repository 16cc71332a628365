"""Lets a traced stream end where it ran.

The grpc instrumentation makes of each streaming call an async generator that sets the current span, and resets it when it ends. A
call that is cancelled while a response is being sent leaves that generator suspended; the garbage collector then ends it
in another context, where the reset fails: a traceback in the log for each cancelled stream, and a span that ends whenever.
Here the generator is read by a coroutine, which a cancel reaches at each of its awaits, and which closes it before it ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

import grpc.aio

Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]


class ClosingInterceptor(grpc.aio.ServerInterceptor):
    """Goes around the instrumentation's own interceptor. Methods named in `untraced` are left alone."""

    def __init__(self, untraced: Collection[str]) -> None:
        self._untraced = frozenset(untraced)

    async def intercept_service(self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Wraps what answers with a stream."""
        handler = await continuation(handler_call_details)
        untraced = handler_call_details.method.rpartition("/")[2] in self._untraced
        if handler is None or untraced or not handler.response_streaming:
            return handler
        made = (
            grpc.stream_stream_rpc_method_handler if handler.request_streaming else grpc.unary_stream_rpc_method_handler
        )
        behavior = handler.stream_stream if handler.request_streaming else handler.unary_stream

        async def answer(request: Any, context: Any) -> None:
            responses = behavior(request, context)
            try:
                async for response in responses:
                    await context.write(response)
            finally:
                await responses.aclose()

        return made(answer, handler.request_deserializer, handler.response_serializer)
