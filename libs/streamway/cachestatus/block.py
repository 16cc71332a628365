"""Whether an answer comes from the cache and from which entry: one block, the same in headers, events and trailers."""

from __future__ import annotations

from typing import Any, Final

from streamway.v1 import common_pb2

# The semantic lookup runs beside the dispatch.
_PENDING: Final = "pending"


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


def of_accepted(accepted: common_pb2.Accepted) -> dict[str, str]:
    """Headers; of a request that the cache was not asked about none."""
    headers = {"x-streamway-cache": accepted.cache} if accepted.cache else {}
    if accepted.HasField("cache_hit"):
        hit = accepted.cache_hit
        headers["x-streamway-cache-entry"] = hit.entry
        headers["x-streamway-cache-similarity"] = f"{hit.similarity:.4f}"
        headers["x-streamway-cache-saved-tokens"] = str(hit.saved_tokens)
        headers["age"] = str(hit.age_s)
    return headers


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
    }
