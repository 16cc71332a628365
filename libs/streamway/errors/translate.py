"""The one translation between exceptions, `google.rpc.Status` and OpenAI's error bodies."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from streamway.errors.catalogue import Internal, StreamwayError, WorkerLost
from streamway.errors.table import TABLE
from streamway.v1.common_pb2 import ErrorReason

DOMAIN = "streamway"


def to_status(error: StreamwayError) -> status_pb2.Status:
    """Status with one ErrorInfo, RetryInfo where a retry makes sense, BadRequest where a field is wrong."""
    details: list[any_pb2.Any] = []

    def pack(message: Any) -> None:
        wrapped = any_pb2.Any()
        wrapped.Pack(message)
        details.append(wrapped)

    pack(error_details_pb2.ErrorInfo(reason=error.name, domain=DOMAIN, metadata=error.metadata))
    if error.row.retryable and error.retry_after_s is not None:
        info = error_details_pb2.RetryInfo()
        info.retry_delay.FromMilliseconds(int(error.retry_after_s * 1000))
        pack(info)
    if error.param is not None:
        violation = error_details_pb2.BadRequest.FieldViolation(field=error.param, description=error.message)
        pack(error_details_pb2.BadRequest(field_violations=[violation]))
    code = getattr(code_pb2, error.row.grpc.name)
    return status_pb2.Status(code=code, message=error.message, details=details)


def from_status(status: status_pb2.Status) -> StreamwayError:
    """Rebuilds the exception; a status that is not ours becomes `Internal` with the sender's message in its metadata."""
    reason, metadata, retry_after_s = 0, dict[str, str](), None
    for detail in status.details:
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        if detail.Unpack(info) and info.domain == DOMAIN:
            value = f"ERROR_REASON_{info.reason.upper()}"
            reason = ErrorReason.Value(value) if value in ErrorReason.keys() else 0
            metadata = dict(info.metadata)
        elif detail.Unpack(retry):
            retry_after_s = retry.retry_delay.ToMilliseconds() / 1000
    if reason not in TABLE:
        return Internal().at(remote=status.message[:200])
    return StreamwayError.restore(reason, status.message, metadata, retry_after_s)


def from_rpc_error(error: grpc.RpcError, worker: str = "") -> StreamwayError:
    """Rebuilds the exception behind a failed call; a transport failure becomes `WorkerLost` or `Internal`."""
    status = rpc_status.from_call(error) if hasattr(error, "trailing_metadata") else None
    if status is not None:
        return from_status(status)
    return WorkerLost(worker) if worker else Internal()


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
