"""A request as the cache sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from services.cache.core.eligibility import refuses_read
from streamway.cachekey import NotCanonical, canonical_form, context_key, exact_key, question_of
from streamway.v1 import common_pb2


@dataclass(frozen=True, slots=True)
class Query:
    """A request that may be answered from the cache.

    `tenant` is the authenticated one, `model` the resolved one; `request` is its id, which draws for audits.
    """

    tenant: str
    model: str
    key: bytes
    form: dict[str, Any]
    semantic: bool
    request: str

    @classmethod
    def of(cls, tenant: str, request: common_pb2.GenerationRequest, limit_bytes: int) -> Self | None:
        """None for a request that must not be answered from the cache."""
        if request.cache == common_pb2.CACHE_POLICY_OFF or request.ByteSize() > limit_bytes:
            return None
        try:
            form = canonical_form(request)
            if refuses_read(request.cache, form):
                return None
            key = exact_key(tenant, request.model, form)
        except NotCanonical:
            return None
        semantic = request.cache == common_pb2.CACHE_POLICY_SEMANTIC
        return cls(tenant, request.model, key, form, semantic, request.generation)

    @property
    def question(self) -> str:
        """The words of the last turn; empty where there is nothing to compare."""
        return question_of(self.form)

    def partition(self, encoder: str) -> bytes:
        """What it is asked in."""
        return context_key(self.tenant, self.model, encoder, self.form)
