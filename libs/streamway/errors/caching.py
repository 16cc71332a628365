"""Refusals that have to do with the cache."""

from __future__ import annotations

from streamway.errors.catalogue import StreamwayError
from streamway.v1.common_pb2 import ErrorReason as Reason


class NotCached(StreamwayError):
    """`state` is what `Accepted.cache` would have said."""

    reason = Reason.ERROR_REASON_NOT_CACHED

    def __init__(self, state: str) -> None:
        super().__init__(
            f"only-if-cached: the cache has no answer that may be given ({state}), and nothing was started; "
            "ask without it",
            state=state,
        )


class TooMuchFeedback(StreamwayError):
    reason = Reason.ERROR_REASON_TOO_MUCH_FEEDBACK

    def __init__(self, tenant: str, most_per_minute: int, retry_after_s: float) -> None:
        super().__init__(
            f"tenant {tenant!r} may give {most_per_minute} opinions a minute; try again in {max(1, retry_after_s):.0f} s",
            retry_after_s=retry_after_s,
            tenant=tenant,
            limit=most_per_minute,
        )
