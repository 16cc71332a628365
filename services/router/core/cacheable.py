"""Which requests may be answered from the cache, and stored in it."""

from __future__ import annotations

from typing import Final

from services.router.core.body import Body
from streamway.v1 import common_pb2
from streamway.v1.common_pb2 import CachePolicy

_ASKED_FOR: Final = (CachePolicy.CACHE_POLICY_EXACT, CachePolicy.CACHE_POLICY_FOLDED, CachePolicy.CACHE_POLICY_SEMANTIC)


def qualifies(request: common_pb2.GenerationRequest, body: Body | None, limit_bytes: int) -> bool:
    """True when the same request may get the same answer.

    Asked for, or drawn without chance: temperature 0 or a seed. Never with several choices or with tools, never when the
    body is too large to have been read.
    """
    if request.cache == CachePolicy.CACHE_POLICY_OFF:
        return False
    if request.openai_body:
        if body is None or body.has_tools or (body.n or 1) > 1:
            return False
        fixed = body.temperature == 0 or body.seed is not None
    else:
        sampling = request.sampling
        if sampling.n > 1:
            return False
        fixed = (sampling.HasField("temperature") and sampling.temperature == 0) or sampling.HasField("seed")
    if request.cache not in _ASKED_FOR and not fixed:
        return False
    return request.ByteSize() <= limit_bytes
