"""The one translation between exceptions, `google.rpc.Status` and OpenAI's error bodies."""

from __future__ import annotations

from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from google.rpc import code_pb2, error_details_pb2, status_pb2

from streamway.errors.catalogue import Cancelled, DeadlineExceeded, Internal, StreamwayError, WorkerLost
from streamway.errors.quotas import QuotaExceeded, RequestTooLargeForQuota
from streamway.errors.table import TABLE
from streamway.v1.common_pb2 import ErrorReason

DOMAIN: Final = "streamway"
# Where grpc keeps a rich status among the trailers.
_DETAILS_KEY: Final = "grpc-status-details-bin"
_REASONS: Final = frozenset(ErrorReason.keys())


def to_status(error: StreamwayError, most_bytes: int | None = None) -> status_pb2.Status:
    """Status with one ErrorInfo, RetryInfo where a retry makes sense, BadRequest where a field is wrong, QuotaFailure where
    a tenant's quota refuses.

    `most_bytes` cuts the message, for where it must fit into HTTP/2 trailers; texts in metadata are cut to a quarter of it.
    """
    details: list[any_pb2.Any] = []
    message, metadata = error.message, error.metadata
    if most_bytes is not None:
        message = _cut(message, most_bytes)
        metadata = {name: _cut(value, most_bytes // 4) for name, value in metadata.items()}

    def pack(message: Any) -> None:
        wrapped = any_pb2.Any()
        wrapped.Pack(message)
        details.append(wrapped)

    pack(error_details_pb2.ErrorInfo(reason=error.name, domain=DOMAIN, metadata=metadata))
    if error.row.retryable and error.retry_after_s is not None:
        info = error_details_pb2.RetryInfo()
        info.retry_delay.FromMilliseconds(int(error.retry_after_s * 1000))
        pack(info)
    if isinstance(error, QuotaExceeded | RequestTooLargeForQuota):
        subject = f"tenant:{metadata.get('tenant', '')}" + (
            f"/model:{metadata['model']}" if "model" in metadata else ""
        )
        exceeded = error_details_pb2.QuotaFailure.Violation(subject=subject, description=message)
        pack(error_details_pb2.QuotaFailure(violations=[exceeded]))
    if error.param is not None:
        violation = error_details_pb2.BadRequest.FieldViolation(field=metadata["field"], description=message)
        pack(error_details_pb2.BadRequest(field_violations=[violation]))
    code = getattr(code_pb2, error.row.grpc.name)
    return status_pb2.Status(code=code, message=message, details=details)


def from_status(status: status_pb2.Status) -> StreamwayError:
    """Rebuilds the exception; a status that is not ours becomes `Internal` with the sender's message in its metadata."""
    reason, metadata, retry_after_s = 0, dict[str, str](), None
    for detail in status.details:
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        if detail.Unpack(info) and info.domain == DOMAIN:
            value = f"ERROR_REASON_{info.reason.upper()}"
            reason = ErrorReason.Value(value) if value in _REASONS else 0
            metadata = dict(info.metadata)
        elif detail.Unpack(retry):
            retry_after_s = retry.retry_delay.ToMilliseconds() / 1000
    if reason not in TABLE:
        return Internal().at(remote=status.message[:200])
    return StreamwayError.restore(reason, status.message, metadata, retry_after_s)


def from_rpc_error(error: grpc.RpcError, worker: str = "") -> StreamwayError:
    """Rebuilds the exception behind a failed call.

    Without a status of ours inside, the transport's own code decides; a peer that cannot be reached is `WorkerLost` when
    `worker` says whom the call went to.
    """
    if not isinstance(error, grpc.aio.AioRpcError):
        return Internal()
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                return from_status(status_pb2.Status.FromString(value))
            except DecodeError:
                break
    code, said = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNAVAILABLE and worker:
        return WorkerLost(worker)
    by_code: dict[grpc.StatusCode, StreamwayError] = {
        grpc.StatusCode.CANCELLED: Cancelled("the peer"),
        grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded("a call between services was running"),
    }
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        # gRPC's own refusal of a message over `max_message_bytes`; its text names both sizes.
        return StreamwayError.restore(ErrorReason.ERROR_REASON_TOO_LARGE, said, {"what": "message"})
    return by_code.get(code) or Internal().at(remote=f"{code.name}: {said[:200]}")


def to_openai_body(error: StreamwayError, request_id: str = "") -> dict[str, Any]:
    """The body OpenAI's clients parse, with `request_id` and `retryable` beside it."""
    return {
        "error": {
            "message": error.message,
            "type": error.row.openai_type,
            "param": error.param,
            "code": error.name,
        },
        "request_id": request_id,
        "retryable": error.row.retryable,
    }


def _cut(text: str, most_bytes: int) -> str:
    """`text`, or as much of it as fits with an ellipsis behind; never half a code point."""
    raw = text.encode()
    return text if len(raw) <= most_bytes else raw[: most_bytes - 3].decode(errors="ignore") + "…"
