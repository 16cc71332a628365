"""What the end of a generation says of the worker that had it.

Only what a healthy worker would not have done counts: a broken connection, a broken engine, silence in mid-answer. What a client
did or asked for says nothing, nor does load: who is full is asked less by other means.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from streamway.errors import EventsExpired, StreamwayError, reason_name
from streamway.v1.common_pb2 import ErrorReason as Reason

# Every reason of the catalogue: true where it counts as a failure of the worker.
COUNTS: Final[Mapping[Reason.ValueType, bool]] = MappingProxyType(
    {
        # What the client asked, or who it is.
        Reason.ERROR_REASON_INVALID_ARGUMENT: False,
        Reason.ERROR_REASON_MALFORMED: False,
        Reason.ERROR_REASON_TOO_LARGE: False,
        Reason.ERROR_REASON_CONTEXT_LENGTH_EXCEEDED: False,
        Reason.ERROR_REASON_MODEL_NOT_FOUND: False,
        Reason.ERROR_REASON_GENERATION_NOT_FOUND: False,
        Reason.ERROR_REASON_CONTEXT_NOT_FOUND: False,
        Reason.ERROR_REASON_CONTEXT_BUSY: False,
        Reason.ERROR_REASON_DUPLICATE_ID: False,
        Reason.ERROR_REASON_UNAUTHENTICATED: False,
        Reason.ERROR_REASON_PERMISSION_DENIED: False,
        Reason.ERROR_REASON_IDEMPOTENCY_CONFLICT: False,
        Reason.ERROR_REASON_ENGINE_REJECTED: False,
        Reason.ERROR_REASON_NOT_CACHED: False,
        Reason.ERROR_REASON_TOO_MUCH_FEEDBACK: False,
        # What the client did, or its time.
        Reason.ERROR_REASON_CANCELLED: False,
        Reason.ERROR_REASON_DEADLINE_EXCEEDED: False,
        Reason.ERROR_REASON_SLOW_CONSUMER: False,
        # Load.
        Reason.ERROR_REASON_QUEUE_FULL: False,
        Reason.ERROR_REASON_QUEUE_TIMEOUT: False,
        Reason.ERROR_REASON_TOO_MANY_GENERATIONS: False,
        Reason.ERROR_REASON_NO_WORKERS: False,
        Reason.ERROR_REASON_QUOTA_EXCEEDED: False,
        Reason.ERROR_REASON_REQUEST_TOO_LARGE_FOR_QUOTA: False,
        Reason.ERROR_REASON_MEMORY_PRESSURE: False,
        Reason.ERROR_REASON_EDGE_OVERLOADED: False,
        Reason.ERROR_REASON_ENGINE_OVERLOADED: False,
        # What is planned, or another part's.
        Reason.ERROR_REASON_GOING_AWAY: False,
        Reason.ERROR_REASON_STORE_UNAVAILABLE: False,
        Reason.ERROR_REASON_ROUTER_UNAVAILABLE: False,
        Reason.ERROR_REASON_EVENTS_EXPIRED: False,
        # Of the task, or of the worker before this one.
        Reason.ERROR_REASON_TAKEOVER_UNSUPPORTED: False,
        Reason.ERROR_REASON_TOO_MANY_ATTEMPTS: False,
        # The worker or its engine.
        Reason.ERROR_REASON_ENGINE_FAILED: True,
        Reason.ERROR_REASON_WORKER_LOST: True,
        Reason.ERROR_REASON_TOKEN_GAP: True,
        Reason.ERROR_REASON_FIRST_TOKEN_TIMEOUT: True,
        Reason.ERROR_REASON_INTERNAL: True,
    }
)
_BY_NAME: Final = {reason_name(reason): counts for reason, counts in COUNTS.items()}


def is_failure(error: StreamwayError) -> bool | None:
    """True where it counts against the worker that told it; None where it says nothing.

    A worker that leaves an answer to another one sends its readers to the channel and says why beside it.
    """
    why = error.metadata.get("moved") if isinstance(error, EventsExpired) else None
    counts = _BY_NAME.get(why, False) if why is not None else COUNTS.get(error.reason, False)
    return True if counts else None
