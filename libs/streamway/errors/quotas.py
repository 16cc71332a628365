"""Refusals of a quota, and of a process that is short of memory."""

from __future__ import annotations

from collections.abc import Mapping

from streamway.errors.catalogue import StreamwayError
from streamway.v1.common_pb2 import ErrorReason as Reason


class QuotaExceeded(StreamwayError):
    """`kind` is "concurrency", "requests_per_minute" or "tokens_per_minute"; `model` is set when it is the model's limit.
    `told` is what the client may read off: limits and what is left."""

    reason = Reason.ERROR_REASON_QUOTA_EXCEEDED

    def __init__(
        self,
        tenant: str,
        kind: str,
        limit: int,
        retry_after_s: float,
        model: str = "",
        told: Mapping[str, str] | None = None,
    ) -> None:
        scope = f" for {model!r}" if model else ""
        done = "in use" if kind == "concurrency" else "used up"
        super().__init__(
            f"the {kind} of tenant {tenant!r}{scope}, {limit}, is {done}; try again in {max(1, retry_after_s):.0f} s",
            retry_after_s=retry_after_s,
            tenant=tenant,
            kind=kind,
            limit=limit,
            model=model,
        )
        self.at(**(told or {}))


class RequestTooLargeForQuota(StreamwayError):
    reason = Reason.ERROR_REASON_REQUEST_TOO_LARGE_FOR_QUOTA

    def __init__(
        self, tenant: str, tokens: int, most: int, model: str = "", told: Mapping[str, str] | None = None
    ) -> None:
        scope = f" for {model!r}" if model else ""
        super().__init__(
            f"this request needs about {tokens} tokens, and tenant {tenant!r}{scope} may use {most} at once; "
            "shorten it, or lower max_tokens",
            tenant=tenant,
            kind="tokens_per_minute",
            limit=most,
            model=model,
        )
        self.at(**(told or {}))


class MemoryPressure(StreamwayError):
    reason = Reason.ERROR_REASON_MEMORY_PRESSURE

    def __init__(self, service: str, *, any_work: bool = False) -> None:
        """`any_work`: not only bulk work is refused."""
        what = (
            "no more work for now; try again later" if any_work else "no bulk work; try again later, or with priority 0"
        )
        super().__init__(
            f"this {service} is short of memory and takes {what}",
            retry_after_s=5.0,
            service=service,
        )


class EdgeOverloaded(StreamwayError):
    reason = Reason.ERROR_REASON_EDGE_OVERLOADED

    def __init__(self, *, socket: bool = False) -> None:
        """`socket`: a new WebSocket is refused, and what to use instead is told."""
        what = "use server-sent events or long polls for now" if socket else "send this bulk work again later"
        super().__init__(
            f"this edge gets more requests than it is made for; {what}", retry_after_s=60.0 if socket else 5.0
        )
