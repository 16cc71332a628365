"""Everything that Streamway refuses or ends, and how each surface says so.

The tree, in `catalogue` and `quotas`; `table` holds one row per reason, `translate` the one translation to every surface:

    StreamwayError
    ├── InvalidArgument, Malformed, TooLarge, ContextLengthExceeded                   the request is wrong
    ├── DuplicateId, IdempotencyConflict                                              a name is taken
    ├── ModelNotFound, GenerationNotFound, EventsExpired                              nothing of that name
    ├── Unauthenticated, PermissionDenied                                             not allowed
    ├── QueueFull, TooManyGenerations, NoWorkers, QueueTimeout                        not now
    ├── DeadlineExceeded, Cancelled, SlowConsumer, GoingAway                          the reader or the end
    ├── EngineRejected, EngineFailed                                                  the engine
    ├── WorkerLost, TakeoverUnsupported, TokenGap, TooManyAttempts                    a stream that cannot go on
    ├── QuotaExceeded, RequestTooLargeForQuota, MemoryPressure                        not so much (`quotas`)
    └── StoreUnavailable, RouterUnavailable, Internal                                 the mesh
"""

from streamway.errors.catalogue import (
    Cancelled,
    ContextLengthExceeded,
    DeadlineExceeded,
    DuplicateId,
    EngineFailed,
    EngineRejected,
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
    TokenGap,
    TooLarge,
    TooManyAttempts,
    TooManyGenerations,
    Unauthenticated,
    WorkerLost,
)
from streamway.errors.quotas import MemoryPressure, QuotaExceeded, RequestTooLargeForQuota
from streamway.errors.table import TABLE, Row, reason_name
from streamway.errors.translate import from_rpc_error, from_status, to_openai_body, to_status

__all__ = [
    "TABLE",
    "Cancelled",
    "ContextLengthExceeded",
    "DeadlineExceeded",
    "DuplicateId",
    "EngineFailed",
    "EngineRejected",
    "EventsExpired",
    "GenerationNotFound",
    "GoingAway",
    "IdempotencyConflict",
    "Internal",
    "InvalidArgument",
    "Malformed",
    "MemoryPressure",
    "ModelNotFound",
    "NoWorkers",
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
    "Unauthenticated",
    "WorkerLost",
    "from_rpc_error",
    "from_status",
    "reason_name",
    "to_openai_body",
    "to_status",
]
