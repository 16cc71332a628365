"""A request as the cache sees it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from services.cache.core.eligibility import refuses_read
from services.cache.core.semantic.self_contained import is_self_contained, repeats_before
from services.cache.core.tags import caller_of, tags_of
from streamway.cachekey import (
    NotCanonical,
    canonical_form,
    context_key,
    exact_key,
    folded_key,
    question_of,
    without_turns,
)
from streamway.v1 import common_pb2


@dataclass(frozen=True)
class Query:
    """A request that may be answered from the cache.

    `tenant` is the authenticated one, `model` the resolved one; `request` is its id, which draws for audits; `user` whom the
    tenant says it asks for, where it may be answered by likeness.
    """

    tenant: str
    model: str
    key: bytes
    form: dict[str, Any]
    policy: common_pb2.CachePolicy.ValueType
    request: str
    user: str = ""

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
        user = caller_of(tags_of(request)) if request.cache == common_pb2.CACHE_POLICY_SEMANTIC else ""
        return cls(tenant, request.model, key, form, request.cache, request.generation, user)

    @property
    def semantic(self) -> bool:
        """It takes the answer to a question in other words."""
        return self.policy == common_pb2.CACHE_POLICY_SEMANTIC

    @cached_property
    def folded(self) -> bytes | None:
        """The key of its words however they are typed; None where they stay as they are, or only they will do."""
        if self.policy not in (common_pb2.CACHE_POLICY_SEMANTIC, common_pb2.CACHE_POLICY_FOLDED):
            return None
        return folded_key(self.tenant, self.model, self.form)

    @property
    def question(self) -> str:
        """The words of the last turn; empty where there is nothing to compare."""
        return question_of(self.form)

    @property
    def context(self) -> bytes:
        """What it is asked in; only for one that has a question."""
        return context_key(self.tenant, self.model, self.form)

    @cached_property
    def own_context(self) -> bytes | None:
        """The same without the turns before, for a question whose words need none of them; None for others."""
        if len(self.form["messages"]) < 2 or not is_self_contained(self.question):
            return None
        form = without_turns(self.form)
        return context_key(self.tenant, self.model, form) if form is not self.form else None

    def belongs_to_turns(self, answer: str) -> bool:
        """Whether its answer repeats something of the turns before it."""
        return repeats_before(answer, self.form)
