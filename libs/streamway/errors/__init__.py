"""Everything that Streamway refuses or ends, and how each surface says so.

The tree, in `catalogue`, `engines`, `quotas` and `caching`; `table` has a row for each reason, `translate` the one translation:

    StreamwayError
    ├── InvalidArgument, Malformed, TooLarge, ContextLengthExceeded                   the request is wrong
    ├── DuplicateId, IdempotencyConflict, ContextBusy                                 a name is taken
    ├── ModelNotFound, GenerationNotFound, EventsExpired, ContextNotFound             nothing of that name
    ├── Unauthenticated, PermissionDenied                                             not allowed
    ├── QueueFull, TooManyGenerations, NoWorkers, QueueTimeout                        not now
    ├── DeadlineExceeded, Cancelled, SlowConsumer, GoingAway                          the reader or the end
    ├── EngineRejected, EngineFailed, EngineOverloaded, FirstTokenTimeout, TokenGap   the engine (`engines`)
    ├── WorkerLost, TakeoverUnsupported, TooManyAttempts                              a stream that cannot go on
    ├── QuotaExceeded, RequestTooLargeForQuota, MemoryPressure, EdgeOverloaded        not so much (`quotas`)
    ├── NotCached, TooMuchFeedback                                                    the cache (`caching`)
    └── StoreUnavailable, RouterUnavailable, Internal                                 the mesh
"""

from streamway.errors.caching import NotCached, TooMuchFeedback
from streamway.errors.catalogue import (
    Cancelled,
    ContextBusy,
    ContextLengthExceeded,
    ContextNotFound,
    DeadlineExceeded,
    DuplicateId,
    EventsExpired,
    GenerationNotFound,
    GoingAway,
    IdempotencyConflict,
    Internal,
    InvalidArgument,
    Malformed,
    ModelNotFound,
    NoWorkers,
    PermissionDenied,
    QueueFull,
    QueueTimeout,
    RouterUnavailable,
    SlowConsumer,
    StoreUnavailable,
    StreamwayError,
    TakeoverUnsupported,
    TooLarge,
    TooManyAttempts,
    TooManyGenerations,
    Unauthenticated,
    WorkerLost,
)
from streamway.errors.engines import EngineFailed, EngineOverloaded, EngineRejected, FirstTokenTimeout, TokenGap
from streamway.errors.quotas import EdgeOverloaded, MemoryPressure, QuotaExceeded, RequestTooLargeForQuota
from streamway.errors.table import TABLE, Row, reason_name
from streamway.errors.translate import from_rpc_error, from_status, to_openai_body, to_status

__all__ = [
    "TABLE",
    "Cancelled",
    "ContextBusy",
    "ContextLengthExceeded",
    "ContextNotFound",
    "DeadlineExceeded",
    "DuplicateId",
    "EdgeOverloaded",
    "EngineFailed",
    "EngineOverloaded",
    "EngineRejected",
    "EventsExpired",
    "FirstTokenTimeout",
    "GenerationNotFound",
    "GoingAway",
    "IdempotencyConflict",
    "Internal",
    "InvalidArgument",
    "Malformed",
    "MemoryPressure",
    "ModelNotFound",
    "NoWorkers",
    "NotCached",
    "PermissionDenied",
    "QueueFull",
    "QueueTimeout",
    "QuotaExceeded",
    "RequestTooLargeForQuota",
    "RouterUnavailable",
    "Row",
    "SlowConsumer",
    "StoreUnavailable",
    "StreamwayError",
    "TakeoverUnsupported",
    "TokenGap",
    "TooLarge",
    "TooManyAttempts",
    "TooManyGenerations",
    "TooMuchFeedback",
    "Unauthenticated",
    "WorkerLost",
    "from_rpc_error",
    "from_status",
    "reason_name",
    "to_openai_body",
    "to_status",
]
