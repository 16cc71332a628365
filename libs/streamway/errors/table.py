"""One row per error reason: what gRPC, HTTP, OpenAI clients and WebSockets are told.

`docs/errors.md` is generated from this table, and a test fails when a reason has no row.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import grpc

from streamway.v1.common_pb2 import ErrorReason as Reason


class Row(NamedTuple):
    """How one reason is told. `close` is a WebSocket close code, used only where the whole connection ends."""

    grpc: grpc.StatusCode
    http: int
    openai_type: str
    close: int
    retryable: bool
    meaning: str


_C = grpc.StatusCode
_BAD = "invalid_request_error"
_RATE = "rate_limit_error"
_SERVER = "server_error"

TABLE: Final[dict[Reason.ValueType, Row]] = {
    Reason.ERROR_REASON_INVALID_ARGUMENT: Row(
        _C.INVALID_ARGUMENT, 400, _BAD, 1008, False, "a field has a wrong type, value or name"
    ),
    Reason.ERROR_REASON_MALFORMED: Row(
        _C.INVALID_ARGUMENT, 400, _BAD, 1007, False, "the bytes are not the JSON, protobuf or frame they should be"
    ),
    Reason.ERROR_REASON_TOO_LARGE: Row(
        _C.RESOURCE_EXHAUSTED, 413, _BAD, 1009, False, "a message, prompt or body is over its size limit"
    ),
    Reason.ERROR_REASON_CONTEXT_LENGTH_EXCEEDED: Row(
        _C.INVALID_ARGUMENT, 400, _BAD, 1008, False, "the prompt does not fit the model's context"
    ),
    Reason.ERROR_REASON_MODEL_NOT_FOUND: Row(_C.NOT_FOUND, 404, _BAD, 1008, False, "no worker serves this model"),
    Reason.ERROR_REASON_GENERATION_NOT_FOUND: Row(
        _C.NOT_FOUND, 404, _BAD, 1008, False, "this tenant has no such generation"
    ),
    Reason.ERROR_REASON_CONTEXT_NOT_FOUND: Row(
        _C.NOT_FOUND,
        404,
        _BAD,
        1008,
        False,
        "no conversation is kept under this id, or no more: all of it must be sent",
    ),
    Reason.ERROR_REASON_CONTEXT_BUSY: Row(
        _C.ABORTED, 409, _BAD, 1013, True, "another turn of the kept conversation runs"
    ),
    Reason.ERROR_REASON_DUPLICATE_ID: Row(
        _C.ALREADY_EXISTS, 409, _BAD, 1008, False, "the id belongs to a live generation"
    ),
    Reason.ERROR_REASON_UNAUTHENTICATED: Row(
        _C.UNAUTHENTICATED, 401, "authentication_error", 4001, False, "credentials are missing or wrong"
    ),
    Reason.ERROR_REASON_PERMISSION_DENIED: Row(
        _C.PERMISSION_DENIED, 403, "permission_error", 4003, False, "the tenant may not do this or use this model"
    ),
    Reason.ERROR_REASON_QUEUE_FULL: Row(_C.RESOURCE_EXHAUSTED, 429, _RATE, 1013, True, "the workers' queues are full"),
    Reason.ERROR_REASON_TOO_MANY_GENERATIONS: Row(
        _C.RESOURCE_EXHAUSTED, 429, _RATE, 1013, True, "the connection or tenant has too many live generations"
    ),
    Reason.ERROR_REASON_QUOTA_EXCEEDED: Row(
        _C.RESOURCE_EXHAUSTED, 429, _RATE, 1013, True, "the tenant's quota, or that for the model, is used up for now"
    ),
    Reason.ERROR_REASON_REQUEST_TOO_LARGE_FOR_QUOTA: Row(
        _C.RESOURCE_EXHAUSTED, 413, _BAD, 1008, False, "the request needs more tokens than the quota ever has at once"
    ),
    Reason.ERROR_REASON_MEMORY_PRESSURE: Row(
        _C.UNAVAILABLE, 503, _SERVER, 1013, True, "a process is short of memory and takes no bulk work"
    ),
    Reason.ERROR_REASON_EDGE_OVERLOADED: Row(
        _C.UNAVAILABLE,
        503,
        _SERVER,
        4013,
        True,
        "an edge gets more requests than it takes WebSockets and bulk work beside",
    ),
    Reason.ERROR_REASON_NO_WORKERS: Row(_C.UNAVAILABLE, 503, _SERVER, 1013, True, "no worker can take work now"),
    Reason.ERROR_REASON_QUEUE_TIMEOUT: Row(_C.UNAVAILABLE, 503, _SERVER, 1013, True, "waited too long in a queue"),
    Reason.ERROR_REASON_DEADLINE_EXCEEDED: Row(
        _C.DEADLINE_EXCEEDED, 504, "timeout_error", 1008, False, "the caller's deadline passed"
    ),
    Reason.ERROR_REASON_NOT_CACHED: Row(
        _C.NOT_FOUND, 504, _BAD, 1008, False, "the caller takes an answer from the cache only, and there is none"
    ),
    Reason.ERROR_REASON_TOO_MUCH_FEEDBACK: Row(
        _C.RESOURCE_EXHAUSTED, 429, _RATE, 1013, True, "the tenant gives more feedback than is taken"
    ),
    Reason.ERROR_REASON_CANCELLED: Row(_C.CANCELLED, 499, "cancelled", 1000, False, "the client cancelled or left"),
    Reason.ERROR_REASON_ENGINE_REJECTED: Row(
        _C.INVALID_ARGUMENT, 400, _BAD, 1008, False, "the engine refused the request; its message is passed on"
    ),
    Reason.ERROR_REASON_ENGINE_FAILED: Row(
        _C.UNAVAILABLE, 502, _SERVER, 1011, True, "the engine failed: 5xx, garbage or a broken connection"
    ),
    Reason.ERROR_REASON_WORKER_LOST: Row(
        _C.UNAVAILABLE, 502, _SERVER, 1011, True, "the worker that ran the generation is gone"
    ),
    Reason.ERROR_REASON_SLOW_CONSUMER: Row(
        _C.RESOURCE_EXHAUSTED, 429, _RATE, 4009, True, "the client reads too slowly for what is buffered for it"
    ),
    Reason.ERROR_REASON_GOING_AWAY: Row(
        _C.UNAVAILABLE, 503, _SERVER, 1001, True, "the process, or this connection, ends"
    ),
    Reason.ERROR_REASON_STORE_UNAVAILABLE: Row(
        _C.UNAVAILABLE, 503, _SERVER, 1013, True, "the store (Valkey) does not answer"
    ),
    Reason.ERROR_REASON_ROUTER_UNAVAILABLE: Row(_C.UNAVAILABLE, 503, _SERVER, 1013, True, "no router answers"),
    Reason.ERROR_REASON_EVENTS_EXPIRED: Row(
        _C.OUT_OF_RANGE, 410, _BAD, 1008, False, "the worker no longer remembers these events"
    ),
    Reason.ERROR_REASON_IDEMPOTENCY_CONFLICT: Row(
        _C.ALREADY_EXISTS, 409, _BAD, 1008, False, "an idempotency key came back with another request"
    ),
    Reason.ERROR_REASON_TAKEOVER_UNSUPPORTED: Row(
        _C.ABORTED, 502, _SERVER, 1011, True, "the worker is gone and no other can continue this answer honestly"
    ),
    Reason.ERROR_REASON_TOKEN_GAP: Row(_C.UNAVAILABLE, 502, _SERVER, 1011, True, "tokens stopped in mid-answer"),
    Reason.ERROR_REASON_FIRST_TOKEN_TIMEOUT: Row(
        _C.UNAVAILABLE, 503, _SERVER, 1013, True, "the engine made no first token in time"
    ),
    Reason.ERROR_REASON_ENGINE_OVERLOADED: Row(
        _C.UNAVAILABLE, 503, _SERVER, 1013, True, "the engine takes no more work now, and says when to come again"
    ),
    Reason.ERROR_REASON_TOO_MANY_ATTEMPTS: Row(
        _C.ABORTED, 502, _SERVER, 1011, False, "the task was tried too often and lies in the dead lane"
    ),
    Reason.ERROR_REASON_INTERNAL: Row(_C.INTERNAL, 500, _SERVER, 1011, False, "a fault of Streamway's own"),
}


def reason_name(reason: Reason.ValueType) -> str:
    """The name of a reason in JSON, metrics and `ErrorInfo`: lower case, without its prefix."""
    return Reason.Name(reason).removeprefix("ERROR_REASON_").lower()
