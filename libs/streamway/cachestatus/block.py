"""Whether an answer comes from the cache and from which entry: one block, the same in headers, events and trailers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from streamway.v1 import cache_pb2, common_pb2

# The semantic lookup runs beside the dispatch.
_PENDING: Final = "pending"
_STATES: Final[dict[cache_pb2.CacheOutcome.ValueType, str]] = {
    cache_pb2.CACHE_OUTCOME_HIT_EXACT: "exact",
    cache_pb2.CACHE_OUTCOME_HIT_FOLDED: "folded",
    cache_pb2.CACHE_OUTCOME_HIT_SEMANTIC: "semantic",
    cache_pb2.CACHE_OUTCOME_MISS: "miss",
}


def state_of(outcome: cache_pb2.CacheOutcome.ValueType) -> str:
    """What `Accepted.cache` says of a lookup."""
    return _STATES.get(outcome, "off")


class Heard:
    """What the events of a generation say of the cache, as far as they were heard."""

    def __init__(self) -> None:
        self._accepted = common_pb2.Accepted()

    def hear(self, events: Iterable[common_pb2.Event]) -> None:
        """In order."""
        for event in events:
            match event.WhichOneof("event"):
                case "accepted":
                    self._accepted.CopyFrom(event.accepted)
                case "started":
                    begun(self._accepted, event.started)
                case "token" | "finished":
                    spoken(self._accepted)

    @property
    def trailers(self) -> tuple[tuple[str, str], ...]:
        """The block, for the end of a call."""
        return tuple(of_accepted(self._accepted).items())


def hit_of(answer: cache_pb2.CachedAnswer) -> common_pb2.CacheHit:
    """What is told of a stored answer."""
    return common_pb2.CacheHit(
        entry=answer.entry,
        similarity=answer.similarity,
        age_s=answer.age_s,
        saved_tokens=answer.usage.prompt_tokens + answer.usage.completion_tokens,
        saved_money=answer.saved_money,
    )


def begun(accepted: common_pb2.Accepted, started: common_pb2.Started) -> None:
    """Notes in `accepted` what `started` says: the cache was quicker than the worker."""
    if started.cache:
        accepted.cache = started.cache
        accepted.cache_hit.CopyFrom(started.cache_hit)
        accepted.worker = ""


def spoken(accepted: common_pb2.Accepted) -> None:
    """Notes that the answer has begun: what the cache has not said by then it will not say."""
    if accepted.cache == _PENDING:
        accepted.cache = "miss"


def named(state: str, hit: common_pb2.CacheHit | None) -> dict[str, str]:
    """Headers or trailers; of a request that the cache was not asked about none."""
    block = {"x-streamway-cache": state} if state else {}
    if hit is not None:
        block["x-streamway-cache-entry"] = hit.entry
        block["x-streamway-cache-similarity"] = f"{hit.similarity:.4f}"
        block["x-streamway-cache-saved-tokens"] = str(hit.saved_tokens)
        block["x-streamway-cache-saved-money"] = f"{hit.saved_money:.8f}"
        block["age"] = str(hit.age_s)
    return block


def of_accepted(accepted: common_pb2.Accepted) -> dict[str, str]:
    """The same of an answer that has begun."""
    return named(accepted.cache, accepted.cache_hit if accepted.HasField("cache_hit") else None)


def of_event(event: common_pb2.Accepted | common_pb2.Started) -> dict[str, Any] | None:
    """A field of `accepted` or `started`; None for an answer that a worker gives."""
    if not event.HasField("cache_hit"):
        return None
    hit = event.cache_hit
    return {
        "entry": hit.entry,
        "similarity": round(hit.similarity, 4),
        "age_s": hit.age_s,
        "saved_tokens": hit.saved_tokens,
        "saved_money": round(hit.saved_money, 8),
    }
