"""The exceptions. Each message is composed from typed fields and says what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Self

from streamway.errors.table import TABLE, Row, reason_name
from streamway.v1.common_pb2 import ErrorReason as Reason


class StreamwayError(Exception):
    """Something was refused or ended for a reason a client can act on.

    `message` is safe to show; `metadata` holds the fields it was made from; `retry_after_s` is set where waiting helps.
    Raise a subclass.
    """

    reason: ClassVar[Reason.ValueType] = Reason.ERROR_REASON_INTERNAL
    _by_reason: ClassVar[dict[int, type[StreamwayError]]] = {}

    def __init_subclass__(cls) -> None:
        StreamwayError._by_reason.setdefault(cls.reason, cls)

    def __init__(self, message: str, *, retry_after_s: float | None = None, **metadata: object) -> None:
        # A lone surrogate from a client's JSON cannot be written as UTF-8, and must not turn a refusal into a crash.
        self.message = _printable(message)
        super().__init__(self.message)
        self.retry_after_s = retry_after_s
        self.metadata = {name: _printable(str(value)) for name, value in metadata.items() if value not in (None, "")}

    @classmethod
    def restore(
        cls, reason: int, message: str, metadata: dict[str, str] | None = None, retry_after_s: float | None = None
    ) -> StreamwayError:
        """Rebuilds an error that another process sent; an unknown reason becomes `Internal`."""
        kind = StreamwayError._by_reason.get(reason, Internal)
        error = kind.__new__(kind)
        StreamwayError.__init__(error, message, retry_after_s=retry_after_s)
        error.metadata = dict(metadata or {})
        return error

    @property
    def name(self) -> str:
        """The reason as JSON and metrics spell it, for instance "queue_full"."""
        return reason_name(self.reason)

    @property
    def row(self) -> Row:
        """How each surface tells it."""
        return TABLE[self.reason]

    @property
    def param(self) -> str | None:
        """The request field at fault, if one is."""
        return self.metadata.get("field")

    def at(self, **metadata: object) -> Self:
        """Adds fields that only an outer layer knows."""
        self.metadata.update({name: _printable(str(value)) for name, value in metadata.items()})
        return self


class InvalidArgument(StreamwayError):
    reason = Reason.ERROR_REASON_INVALID_ARGUMENT

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}", field=field)


class Malformed(StreamwayError):
    reason = Reason.ERROR_REASON_MALFORMED

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"{what} cannot be read: {problem}", what=what)


class TooLarge(StreamwayError):
    reason = Reason.ERROR_REASON_TOO_LARGE

    def __init__(self, what: str, limit_bytes: int, setting: str = "") -> None:
        hint = f"; the limit is the setting {setting}" if setting else ""
        super().__init__(f"{what} is larger than {limit_bytes} bytes{hint}", what=what, limit_bytes=limit_bytes)


class ContextLengthExceeded(StreamwayError):
    reason = Reason.ERROR_REASON_CONTEXT_LENGTH_EXCEEDED

    def __init__(self, detail: str) -> None:
        super().__init__(f"the prompt does not fit the model's context: {detail}", field="messages")


class ModelNotFound(StreamwayError):
    reason = Reason.ERROR_REASON_MODEL_NOT_FOUND

    def __init__(self, model: str, served: list[str]) -> None:
        names = ", ".join(sorted(served)[:10]) or "none that may be used"
        super().__init__(
            f"no worker serves the model {model[:100]!r}; served now: {names}", field="model", model=model[:100]
        )


class GenerationNotFound(StreamwayError):
    reason = Reason.ERROR_REASON_GENERATION_NOT_FOUND

    def __init__(self, generation: str) -> None:
        super().__init__(f"there is no generation {generation[:64]!r}", generation=generation[:64])


class ContextNotFound(StreamwayError):
    reason = Reason.ERROR_REASON_CONTEXT_NOT_FOUND

    def __init__(self, context: str, why: str = "nothing is kept under this id") -> None:
        super().__init__(
            f"the context {context[:64]!r} cannot be gone on with: {why}; send the whole conversation as its start",
            field="context",
            context=context[:64],
        )


class ContextBusy(StreamwayError):
    reason = Reason.ERROR_REASON_CONTEXT_BUSY

    def __init__(self, context: str, generation: str) -> None:
        super().__init__(
            f"a turn of the context {context[:64]!r} runs; wait for its end, or cancel it, and send this one again",
            retry_after_s=1.0,
            field="context",
            context=context[:64],
            generation=generation,
        )


class DuplicateId(StreamwayError):
    reason = Reason.ERROR_REASON_DUPLICATE_ID

    def __init__(self, id_: str) -> None:
        super().__init__(f"{id_[:64]!r} is the id of a live generation; choose another", field="id", id=id_[:64])


class IdempotencyConflict(StreamwayError):
    reason = Reason.ERROR_REASON_IDEMPOTENCY_CONFLICT

    def __init__(self, generation: str) -> None:
        super().__init__(
            f"this key was used for another request, which began generation {generation}; choose another key",
            field="idempotency_key",
            generation=generation,
        )


class Unauthenticated(StreamwayError):
    reason = Reason.ERROR_REASON_UNAUTHENTICATED

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem}; send 'Authorization: Bearer <key>' with the API key of a tenant")


class PermissionDenied(StreamwayError):
    reason = Reason.ERROR_REASON_PERMISSION_DENIED

    @classmethod
    def model(cls, model: str, allowed: Iterable[str]) -> Self:
        """A model that is not among those the tenant may use."""
        names = ", ".join(sorted(allowed)[:10]) or "none"
        return cls(
            f"this tenant may not use the model {model[:100]!r}; it may use: {names}", field="model", model=model[:100]
        )

    @classmethod
    def tenant(cls, tenant: str) -> Self:
        """A tenant without a row."""
        return cls(f"the tenant {tenant[:64]!r} is not configured here; ask the operator for a row", tenant=tenant[:64])

    @classmethod
    def operators_only(cls, tenant: str) -> Self:
        """Something about the whole mesh."""
        return cls(
            f"only operators may see this, and the tenant {tenant[:64]!r} is none; STREAMWAY_EDGE_OPERATORS names them",
            tenant=tenant[:64],
        )


class QueueFull(StreamwayError):
    reason = Reason.ERROR_REASON_QUEUE_FULL

    def __init__(self, model: str, retry_after_s: float) -> None:
        super().__init__(
            f"every worker of {model!r} has a full queue; try again in {retry_after_s:.0f} s",
            retry_after_s=retry_after_s,
            model=model,
        )


class TooManyGenerations(StreamwayError):
    reason = Reason.ERROR_REASON_TOO_MANY_GENERATIONS

    def __init__(self, scope: str, limit: int) -> None:
        super().__init__(
            f"this {scope} already has {limit} live generations; let one end or cancel one",
            retry_after_s=1.0,
            scope=scope,
            limit=limit,
        )


class NoWorkers(StreamwayError):
    reason = Reason.ERROR_REASON_NO_WORKERS

    def __init__(self, model: str) -> None:
        super().__init__(f"no worker of {model!r} can take work now", retry_after_s=1.0, model=model)


class QueueTimeout(StreamwayError):
    reason = Reason.ERROR_REASON_QUEUE_TIMEOUT

    def __init__(self, waited_s: float) -> None:
        super().__init__(f"waited {waited_s:.0f} s for a worker", retry_after_s=1.0)


class DeadlineExceeded(StreamwayError):
    reason = Reason.ERROR_REASON_DEADLINE_EXCEEDED

    def __init__(self, stage: str) -> None:
        super().__init__(f"the deadline passed while {stage}", stage=stage)


class Cancelled(StreamwayError):
    reason = Reason.ERROR_REASON_CANCELLED

    def __init__(self, by: str = "the client") -> None:
        super().__init__(f"cancelled by {by}", by=by)


class WorkerLost(StreamwayError):
    reason = Reason.ERROR_REASON_WORKER_LOST

    def __init__(self, worker: str) -> None:
        super().__init__(
            f"worker {worker!r} is gone, and this generation with it; ask again", retry_after_s=1.0, worker=worker
        )


class SlowConsumer(StreamwayError):
    reason = Reason.ERROR_REASON_SLOW_CONSUMER

    def __init__(self, buffered_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"{buffered_bytes} bytes wait for this client, the limit is {limit_bytes}; read faster or open fewer at once",
            limit_bytes=limit_bytes,
        )


class GoingAway(StreamwayError):
    reason = Reason.ERROR_REASON_GOING_AWAY

    def __init__(self, service: str, connection_ends: str = "") -> None:
        """`connection_ends` is why, where the process goes on and only this connection does not."""
        what = f"this connection ends: {connection_ends}" if connection_ends else f"this {service} is shutting down"
        super().__init__(f"{what}; connect again", retry_after_s=1.0, service=service)


class StoreUnavailable(StreamwayError):
    reason = Reason.ERROR_REASON_STORE_UNAVAILABLE

    def __init__(self, *, waited: bool = False) -> None:
        what = "ask again"
        if waited:
            what = "it was waited for as long as strict allows; resume from the cursor of the last event"
        super().__init__(f"the store does not answer; {what}", retry_after_s=1.0)


class RouterUnavailable(StreamwayError):
    reason = Reason.ERROR_REASON_ROUTER_UNAVAILABLE

    def __init__(self) -> None:
        super().__init__("no router answers; nothing was started", retry_after_s=1.0)


class EventsExpired(StreamwayError):
    reason = Reason.ERROR_REASON_EVENTS_EXPIRED

    def __init__(self, generation: str, *, moved: str = "") -> None:
        """`moved`: the worker has left it to another one, for this reason; "unknown" where it does not remember that."""
        super().__init__(
            f"the events of generation {generation!r} are no longer kept", generation=generation, moved=moved
        )


class Internal(StreamwayError):
    reason = Reason.ERROR_REASON_INTERNAL

    def __init__(self, request_id: str = "") -> None:
        super().__init__("internal error; the log has more under this request id", request_id=request_id)


def _printable(text: str) -> str:
    return text if text.isascii() else text.encode(errors="replace").decode()


class TakeoverUnsupported(StreamwayError):
    reason = Reason.ERROR_REASON_TAKEOVER_UNSUPPORTED

    def __init__(self, worker: str, why: str) -> None:
        super().__init__(
            f"worker {worker!r} is gone, and another cannot continue this answer honestly: {why}; ask again",
            retry_after_s=1.0,
            worker=worker,
            why=why,
        )


class TooManyAttempts(StreamwayError):
    reason = Reason.ERROR_REASON_TOO_MANY_ATTEMPTS

    def __init__(self, attempts: int) -> None:
        super().__init__(
            f"this generation brought down {attempts} workers and was given up; an operator finds it in the dead lane",
            attempts=attempts,
        )
