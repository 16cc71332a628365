"""What an engine refuses, and how it fails."""

from __future__ import annotations

from streamway.errors.catalogue import StreamwayError
from streamway.v1.common_pb2 import ErrorReason as Reason


class EngineRejected(StreamwayError):
    reason = Reason.ERROR_REASON_ENGINE_REJECTED

    def __init__(self, message: str, engine_status: int, field: str = "") -> None:
        super().__init__(message, engine_status=engine_status, field=field)


class EngineFailed(StreamwayError):
    reason = Reason.ERROR_REASON_ENGINE_FAILED

    def __init__(self, worker: str, problem: str) -> None:
        super().__init__(f"the engine of worker {worker!r} failed: {problem}", retry_after_s=1.0, worker=worker)


class EngineOverloaded(StreamwayError):
    reason = Reason.ERROR_REASON_ENGINE_OVERLOADED

    def __init__(self, worker: str, engine_status: int, retry_after_s: float, message: str = "") -> None:
        said = f": {message}" if message else ""
        super().__init__(
            f"the engine of worker {worker!r} takes no more work now (status {engine_status}){said}",
            retry_after_s=retry_after_s,
            worker=worker,
            engine_status=engine_status,
        )


class FirstTokenTimeout(StreamwayError):
    reason = Reason.ERROR_REASON_FIRST_TOKEN_TIMEOUT

    def __init__(self, worker: str, waited_s: float) -> None:
        super().__init__(
            f"the engine of worker {worker!r} made no token in {waited_s:g} s; ask again",
            retry_after_s=1.0,
            worker=worker,
        )


class TokenGap(StreamwayError):
    reason = Reason.ERROR_REASON_TOKEN_GAP

    def __init__(self, worker: str, waited_s: float) -> None:
        super().__init__(
            f"worker {worker!r} gave nothing for {waited_s:.0f} s in mid-answer", retry_after_s=1.0, worker=worker
        )
