"""What the window has to know of a request."""

from __future__ import annotations

from typing import Final

from services.inference_adapter.core.window_events import Taken
from streamway.lanes.task import TakenTask
from streamway.v1 import common_pb2
from streamway.valkey import keys

_NEVER: Final = float("inf")


def taken_from(
    request: common_pb2.GenerationRequest,
    task: TakenTask | None,
    *,
    worker: str,
    tokens: int,
    expires_at: float,
    clock_ahead_s: float,
    first_token_s: float,
) -> Taken:
    """`task` None: it came past the lanes of `worker`. `tokens` is its estimate, `clock_ahead_s` the monotonic clock less Unix
    time."""
    class_ = class_of(request, task)
    deadline = request.deadline_unix_ms
    return Taken(
        request.generation,
        rank=rank_of(class_),
        priority=request.priority,
        expires_at=expires_at,
        deadline_at=deadline / 1000 + clock_ahead_s if deadline else _NEVER,
        lane=class_,
        tenant=request.tenant,
        weight=max(1, request.entitlement.weight),
        cost=max(1, tokens),
        first_token_s=first_token_s,
        broken_off=task is not None and task.copy.failures > 0,
        # Without a channel its readers would not find it; and it goes back once only.
        own=task is not None and task.lane == keys.lane(worker, class_),
        movable=task is not None and not task.copy.degraded and request.durability != common_pb2.DURABILITY_OFF,
    )


def class_of(request: common_pb2.GenerationRequest, task: TakenTask | None = None) -> keys.TaskClass:
    """The class of the lane it came through, or would have."""
    return task.class_ if task is not None else keys.task_class(request.priority, request.entitlement.tier)


def rank_of(class_: keys.TaskClass) -> int:
    """0: interactive; 1: bulk."""
    return int(keys.is_bulk(class_))
