"""Which entry of the cache an answer comes from, as headers and as a field of events."""

from __future__ import annotations

from typing import Any

from streamway.v1 import common_pb2


def of_accepted(accepted: common_pb2.Accepted) -> dict[str, str]:
    """Headers; none for an answer that a worker gives. A request that the cache was not asked about has none either."""
    headers = {"x-streamway-cache": accepted.cache} if accepted.cache else {}
    if accepted.HasField("cache_hit"):
        hit = accepted.cache_hit
        headers["x-streamway-cache-entry"] = hit.entry
        headers["x-streamway-cache-similarity"] = f"{hit.similarity:.4f}"
        headers["age"] = str(hit.age_s)
    return headers


def of_event(accepted: common_pb2.Accepted) -> dict[str, Any] | None:
    """A field of `accepted`; None for an answer that a worker gives."""
    if not accepted.HasField("cache_hit"):
        return None
    hit = accepted.cache_hit
    return {"entry": hit.entry, "similarity": round(hit.similarity, 4), "age_s": hit.age_s}
