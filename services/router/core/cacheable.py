"""Which requests may be answered from the cache, and stored in it."""

from __future__ import annotations

from enum import Enum
from typing import Final

from services.router.core.body import Body
from streamway.tenancy import SemanticLookup
from streamway.v1 import common_pb2
from streamway.v1.common_pb2 import CachePolicy

_ASKED_FOR: Final = (CachePolicy.CACHE_POLICY_EXACT, CachePolicy.CACHE_POLICY_FOLDED, CachePolicy.CACHE_POLICY_SEMANTIC)


class Way(Enum):
    """How the cache is asked."""

    KEYED = "keyed"  # the levels without an encoder, before the dispatch
    ALL = "all"  # all of them before the dispatch
    BESIDE = "beside"  # those without an encoder before it, the semantic one beside it


def way_of(request: common_pb2.GenerationRequest, wanted: SemanticLookup) -> Way:
    """`wanted` is what the tenant has. Beside a dispatch only what has a channel can be answered: its readers find it there. And
    where nothing will be dispatched there is no beside."""
    if request.cache != CachePolicy.CACHE_POLICY_SEMANTIC or wanted is SemanticLookup.OFF:
        return Way.KEYED
    if request.durability == common_pb2.DURABILITY_OFF or request.cache_control.only_if_cached:
        return Way.ALL
    return Way.ALL if wanted is SemanticLookup.BEFORE else Way.BESIDE


def may_read(request: common_pb2.GenerationRequest) -> bool:
    """Its caller takes a stored answer. RFC 9111 §5.2.1: no-cache does not, and nothing is as young as max-age=0 asks."""
    control = request.cache_control
    return not (control.no_cache or (control.HasField("max_age_s") and control.max_age_s == 0))


def may_store(request: common_pb2.GenerationRequest) -> bool:
    """Its answer may be kept."""
    return not request.cache_control.no_store


def young_enough(request: common_pb2.GenerationRequest, age_s: int) -> bool:
    """A stored answer of that age is one its caller takes."""
    control = request.cache_control
    return not control.HasField("max_age_s") or age_s <= control.max_age_s


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
