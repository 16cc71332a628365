"""Server interceptors, outermost first: errors, then authentication.

Abort happens in `ErrorInterceptor` alone: servicers raise `StreamwayError`. `grpc.aio.AbortError` is a plain Exception, so
nothing between it and here may catch broadly.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final, NoReturn, TypeAlias

import grpc
import grpc.aio
import structlog
from grpc_status import rpc_status

from streamway.auth import ANONYMOUS, Credentials, Identity, ShownStanding, Standing
from streamway.auth.credentials import same_secret
from streamway.errors import Internal, StreamwayError, Unauthenticated, to_status
from streamway.rpc.channel import MESH_TOKEN_KEY
from streamway.runtime.ids import new_secret_id

_log = structlog.get_logger("rpc")
_NOBODY: Final = Standing(ANONYMOUS)
_standing: ContextVar[Standing] = ContextVar("streamway_standing", default=_NOBODY)

# Health and reflection tell nothing about anybody and must answer a probe that holds no secret.
_OPEN_SERVICES: Final = (
    "/grpc.health.v1.Health/",
    "/grpc.reflection.v1alpha.ServerReflection/",
    "/grpc.reflection.v1.ServerReflection/",
)

# In quotes, since only the stubs know that a handler is generic.
_Continuation: TypeAlias = "Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]]"
_MAKERS: Final = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}

# A peer refuses trailers over 8 KiB. The text goes into them twice, once percent-encoded (up to three bytes for one) and
# once in base64 inside the details, a third time where a field is named.
_MOST_TRAILER_TEXT_BYTES: Final = 1000


def caller() -> Identity:
    """The authenticated caller of the RPC that is being served."""
    return _standing.get().identity


def standing() -> Standing:
    """The same with what it was let in by, to ask again later."""
    return _standing.get()


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Turns exceptions into rich statuses. What is not a StreamwayError is logged and told as INTERNAL with an id."""

    async def intercept_service(
        self, continuation: _Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        behaviour = _behaviour(handler)
        method = handler_call_details.method

        async def stream(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
            try:
                answers = behaviour(request, context)
                if not hasattr(answers, "__aiter__"):
                    # The generic reflection servicer is a coroutine that writes to the context.
                    await answers
                    return
                try:
                    async for answer in answers:
                        yield answer
                finally:
                    await answers.aclose()
            except Exception as error:  # noqa: BLE001 — the one place where the unknown becomes INTERNAL
                await _abort(context, method, error)

        async def unary(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            try:
                answer = behaviour(request, context)
                # Channelz answers synchronously, ours with coroutines.
                return await answer if isinstance(answer, Awaitable) else answer
            except Exception as error:  # noqa: BLE001 — the one place where the unknown becomes INTERNAL
                await _abort(context, method, error)

        return _same_kind(handler, stream if handler.response_streaming else unary)


class AuthInterceptor(grpc.aio.ServerInterceptor):
    """Knows the caller by mesh token or by its own credentials; others pass only when neither is configured, or as the tenant
    that is configured for them.

    Runs inside `ErrorInterceptor`, which awaits or iterates what a handler returns: so this one adds no generator of its own
    to the path of each message.
    """

    def __init__(self, mesh_token: str | None, credentials: Credentials) -> None:
        self._token = mesh_token
        self._credentials = credentials

    async def intercept_service(
        self, continuation: _Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler = await continuation(handler_call_details)
        if handler is None or handler_call_details.method.startswith(_OPEN_SERVICES):
            return handler
        behaviour = _behaviour(handler)
        metadata = dict(handler_call_details.invocation_metadata or ())

        def run(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            _standing.set(self._identify(metadata))
            return behaviour(request, context)

        return _same_kind(handler, run)

    def _identify(self, metadata: dict[str, Any]) -> Standing:
        token = metadata.get(MESH_TOKEN_KEY)
        if token is not None and self._token is not None:
            if same_secret(str(token), self._token):
                return Standing(Identity("anonymous", mesh=True))
            raise Unauthenticated("the mesh token is wrong")
        credentials = self._credentials
        if not credentials.required:
            if self._token is None:
                # Loopback without configuration: everybody on this machine is one tenant, and our own services are believed.
                return Standing(Identity(credentials.identify("").tenant, mesh=True))
            raise Unauthenticated("credentials are missing")
        scheme, _, shown = str(metadata.get("authorization", "")).partition(" ")
        if shown and scheme.lower() != "bearer":
            raise Unauthenticated("the authorization is not 'Bearer <key>'")
        return ShownStanding(credentials, shown.strip())


async def _abort(context: grpc.aio.ServicerContext[Any, Any], method: str, error: Exception) -> NoReturn:
    """Ends the call with the status of `error`; always raises."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if not isinstance(error, StreamwayError):
        request_id = new_secret_id()
        _log.error("rpc_failed", method=method, request_id=request_id, exc_info=error)
        error = Internal(request_id)
    rich = rpc_status.to_status(to_status(error, most_bytes=_MOST_TRAILER_TEXT_BYTES))
    await context.abort(rich.code, rich.details, rich.trailing_metadata)
    raise AssertionError("abort returned")


def _behaviour(handler: grpc.RpcMethodHandler[Any, Any]) -> Callable[[Any, Any], Any]:
    """The function behind a handler, whichever of the four kinds it is."""
    kinds: tuple[Callable[[Any, Any], Any] | None, ...] = (
        handler.unary_unary,
        handler.unary_stream,
        handler.stream_unary,
        handler.stream_stream,
    )
    return next(behaviour for behaviour in kinds if behaviour is not None)


def _same_kind(
    handler: grpc.RpcMethodHandler[Any, Any], behaviour: Callable[[Any, Any], Any]
) -> grpc.RpcMethodHandler[Any, Any]:
    """A handler like `handler` with another function behind it."""
    make: Any = _MAKERS[handler.request_streaming, handler.response_streaming]
    made: grpc.RpcMethodHandler[Any, Any] = make(behaviour, handler.request_deserializer, handler.response_serializer)
    return made
