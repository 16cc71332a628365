"""Whether a request may come in at all."""

from __future__ import annotations

from streamway.errors import GoingAway, StreamwayError, TooManyGenerations

_UNTOLD_QUEUE = 8
_LEAST_RETRY_S = 1.0
_MOST_RETRY_S = 30.0


def refusal(*, draining: bool, live: int, most: int) -> StreamwayError | None:
    """The reason to refuse, or None. `live` generations of this router, `most` allowed."""
    if draining:
        return GoingAway("router")
    if live >= most:
        return TooManyGenerations("router", most)
    return None


def queue_limit(configured: int | None, preload_depth: int) -> int:
    """Tasks that may wait in each lane of a worker: as configured, else twice the depth it reports, 8 where it reports none."""
    if configured is not None:
        return configured
    return 2 * preload_depth if preload_depth > 0 else _UNTOLD_QUEUE


def crowded_limit(limit: int) -> int:
    """The same where breakers are ignored: half, rounded up."""
    return (limit + 1) // 2


def slots_ahead(slots: int) -> int:
    """How many slots a worker keeps for urgent work, as workers do where nothing else is set. One that keeps more gets a little
    less urgent work of others than it could start, one that keeps fewer a little more."""
    return min(2, slots // 8)


def queue_position(tasks: int, slots: int) -> int:
    """Place in a worker's queue of a task that comes after `tasks` others; 0: a slot is free for it."""
    return max(0, tasks - slots + 1)


def retry_after_s(ends_per_s: float) -> float:
    """When a full queue will have a place: one end from now at the rate of late, within 1 … 30 s; 1 s when unknown."""
    if ends_per_s <= 0:
        return _LEAST_RETRY_S
    return min(_MOST_RETRY_S, max(_LEAST_RETRY_S, 1 / ends_per_s))
