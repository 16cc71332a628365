"""Server interceptors, outermost first: errors, then authentication.

Abort happens in `ErrorInterceptor` alone: servicers raise `StreamwayError`. `grpc.aio.AbortError` is a plain Exception, so
nothing between it and here may catch broadly.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final

import grpc
import grpc.aio
import structlog
from google.rpc import status_pb2
from grpc_status import rpc_status

from streamway.auth import ANONYMOUS, ApiKeys, Identity
from streamway.auth.keys import same_secret
from streamway.errors import Internal, StreamwayError, Unauthenticated, to_status
from streamway.rpc.channel import MESH_TOKEN_KEY
from streamway.runtime.ids import new_secret_id

_log = structlog.get_logger("rpc")
_caller: ContextVar[Identity] = ContextVar("streamway_caller", default=ANONYMOUS)

# Health and reflection tell nothing about anybody and must answer a probe that holds no secret.
_OPEN_SERVICES: Final = (
    "/grpc.health.v1.Health/",
    "/grpc.reflection.v1alpha.ServerReflection/",
    "/grpc.reflection.v1.ServerReflection/",
)


def caller() -> Identity:
    """The authenticated caller of the RPC that is being served."""
    return _caller.get()


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Turns exceptions into rich statuses. What is not a StreamwayError is logged and told as INTERNAL with an id."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any]]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any]:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method

        async def guard(context: grpc.aio.ServicerContext[Any, Any], error: Exception) -> None:
            if isinstance(error, grpc.aio.AbortError):
                raise error
            if not isinstance(error, StreamwayError):
                request_id = new_secret_id()
                _log.error("rpc_failed", method=method, request_id=request_id, exc_info=error)
                error = Internal(request_id)
            await _abort(context, to_status(error))

        return _wrapped(handler, guard, None)


class AuthInterceptor(grpc.aio.ServerInterceptor):
    """Knows the caller by mesh token or API key; anonymous callers pass only when neither is configured."""

    def __init__(self, mesh_token: str | None, keys: ApiKeys | None) -> None:
        self._token = mesh_token
        self._keys = keys

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any]]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any]:
        handler = await continuation(handler_call_details)
        if handler is None or handler_call_details.method.startswith(_OPEN_SERVICES):
            return handler
        metadata = {key: value for key, value in handler_call_details.invocation_metadata or ()}
        try:
            identity = self._identify(metadata)
        except StreamwayError as refusal:
            return _refusing(handler, refusal)

        def enter() -> None:
            _caller.set(identity)

        return _wrapped(handler, None, enter)

    def _identify(self, metadata: dict[str, Any]) -> Identity:
        token = metadata.get(MESH_TOKEN_KEY)
        if token is not None and self._token is not None:
            if same_secret(str(token), self._token):
                return Identity("anonymous", mesh=True)
            raise Unauthenticated("the mesh token is wrong")
        scheme, _, key = str(metadata.get("authorization", "")).partition(" ")
        if key and self._keys is not None:
            found = self._keys.identify(key.strip()) if scheme.lower() == "bearer" else None
            if found is None:
                raise Unauthenticated("the API key is unknown")
            return found
        if self._token is None and self._keys is None:
            # Loopback without configuration: everybody on this machine is one tenant, and our own services are believed.
            return Identity("anonymous", mesh=True)
        raise Unauthenticated("credentials are missing")


async def _abort(context: grpc.aio.ServicerContext[Any, Any], status: status_pb2.Status) -> None:
    rich = rpc_status.to_status(status)
    await context.abort(rich.code, rich.details, rich.trailing_metadata)


def _wrapped(
    handler: Any,
    guard: Callable[[Any, Exception], Awaitable[None]] | None,
    enter: Callable[[], None] | None,
) -> Any:
    """The same handler with `enter` called before it and `guard` called with what it raises."""
    if handler is None:
        return handler
    if handler.response_streaming:
        inner_stream = handler.unary_stream or handler.stream_stream

        async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
            if enter is not None:
                enter()
            try:
                answers = inner_stream(request, context)
                if hasattr(answers, "__aiter__"):
                    try:
                        async for answer in answers:
                            yield answer
                    finally:
                        await answers.aclose()
                else:
                    # The generic reflection and channelz servicers are coroutines that write to the context.
                    await answers
            except asyncio.CancelledError:
                raise
            except Exception as error:
                if guard is None:
                    raise
                await guard(context, error)

        make = (
            grpc.stream_stream_rpc_method_handler if handler.request_streaming else grpc.unary_stream_rpc_method_handler
        )
        return make(stream, handler.request_deserializer, handler.response_serializer)

    inner = handler.unary_unary or handler.stream_unary

    async def unary(request: Any, context: Any) -> Any:
        if enter is not None:
            enter()
        try:
            return await _result(inner(request, context))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            if guard is None:
                raise
            await guard(context, error)

    make_unary = (
        grpc.stream_unary_rpc_method_handler if handler.request_streaming else grpc.unary_unary_rpc_method_handler
    )
    return make_unary(unary, handler.request_deserializer, handler.response_serializer)


async def _result(answer: Any) -> Any:
    """Standard servicers (channelz) answer synchronously, ours with coroutines."""
    return await answer if hasattr(answer, "__await__") else answer


def _refusing(handler: Any, refusal: StreamwayError) -> Any:
    """A handler of the same kind that refuses every call."""

    def refuse() -> None:
        raise refusal

    return _wrapped(handler, None, refuse)
