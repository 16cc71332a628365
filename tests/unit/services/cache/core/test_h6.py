"""Mistakes that caches of this kind have made, against the parts that decide."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cache.core.decide import Asked, Candidate, Outcome, Policy, decide
from services.cache.core.entries import Entries
from services.cache.core.eviction import make_eviction
from services.cache.core.semantic.options import SemanticOptions
from services.cache.core.semantic.standing import Standings
from services.cache.core.store import ExactCache, Limits
from services.cache.core.vetoes.text import Text
from tests.unit.services.cache.requests import answer, body, typed

_TOPICS = ("the alarm", "push notifications", "dark mode", "the garden lights", "automatic updates", "the water pump")
_OPPOSITES = (
    ("How do I turn on {}?", "How do I turn off {}?"),
    ("How do I enable {}?", "How do I disable {}?"),
    ("When is {} available?", "When is {} unavailable?"),
    ("Should I use {}?", "Should I not use {}?"),
    ("Why does {} work?", "Why doesn't {} work?"),
    ("Can I change {} before I pay?", "Can I change {} after I pay?"),
    ("Is {} more useful at night?", "Is {} less useful at night?"),
    ("How do I open {}?", "How do I close {}?"),
    ("How do I start {} with a key?", "How do I start {} without a key?"),
)
_SAME = (
    ("How do I turn on {}?", "How can I turn on {}?"),
    ("How do I enable {}?", "How can I enable {}, please?"),
    ("Should I use {}?", "should I use {}"),
    ("Can I change {} before I pay?", "May I change {} before I pay?"),
    ("How do I open {}?", "What is the way to open {}?"),
)
_ZH_TOPICS = ("闹钟", "推送通知", "夜间模式", "自动更新")
_ZH_OPPOSITES = (
    ("如何打开{}？", "如何关闭{}？"),
    ("我可以使用{}吗？", "我不可以使用{}吗？"),
    ("怎样开启{}？", "怎样停用{}？"),
)
_ZH_SAME = (("如何打开{}？", "怎么打开{}？"), ("怎样开启{}？", "请问怎样开启{}？"))


def served(stored: str, asked: str) -> bool:
    """By the default policy of a new tenant, at a similarity above every threshold."""
    options = SemanticOptions("budget", True, 0.01, 0.0, 0.0, False, ())
    policy: Policy = Standings(lambda _: options).of("t").policy
    candidate = Candidate("e", stored.encode(), Text(stored), 0.995)
    return decide([candidate], Asked(asked.encode(), Text(asked), 0.99), policy).outcome is Outcome.SERVE


def filled(pairs: Any, topics: Any) -> list[tuple[str, str]]:
    both = [(a.format(topic), b.format(topic)) for (a, b), topic in itertools.product(pairs, topics)]
    return both + [(b, a) for a, b in both]


@pytest.mark.parametrize(
    ("traps", "controls"),
    [
        (filled(_OPPOSITES, _TOPICS), filled(_SAME, _TOPICS)),
        (filled(_ZH_OPPOSITES, _ZH_TOPICS), filled(_ZH_SAME, _ZH_TOPICS)),
    ],
    ids=["en", "zh"],
)
def test_h6_a_question_and_its_opposite_are_two_however_alike_and_paraphrases_still_hit(
    traps: list[tuple[str, str]], controls: list[tuple[str, str]]
) -> None:
    wrong = [pair for pair in traps if served(*pair)]
    assert len(wrong) <= 0.02 * len(traps), wrong
    right = [pair for pair in controls if served(*pair)]
    assert len(right) >= 0.8 * len(controls), sorted(set(controls) - set(right))


_STEPS = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["get", "put", "drop"]), st.integers(0, 3), st.booleans()),
    max_size=40,
)


class _Told:
    """What one tenant is told by a cache that others use too."""

    def __init__(self) -> None:
        numbers = itertools.count()
        entries = Entries(10**6, 10**5, lambda: 0.5, lambda: str(next(numbers)), lambda: make_eviction("w-tinylfu"))
        self._cache = ExactCache(entries, Limits(60, 60, 1000, 1000), lambda: 0.0)

    def step(self, tenant: str, what: str, question: int, as_body: bool) -> Any:
        # A body that claims to be somebody else's is only another body.
        request = (
            body({"messages": [{"role": "user", "content": str(question)}], "tenant": "a", "user": "a"})
            if as_body
            else typed(str(question), tenant="a")
        )
        query = self._cache.query(tenant, request)
        assert query is not None
        if what == "get":
            entry = self._cache.get(query)
            stats = self._cache.stats(tenant)
            return entry and entry.body, stats.entries, stats.bytes, stats.hits
        if what == "put":
            kept = self._cache.put(query, answer(f"{tenant} {question}"), 0)
            return isinstance(kept, str)
        return len(self._cache.entries.remove_where(tenant, lambda _: True))


@given(_STEPS)
def test_h6_what_one_tenant_is_told_does_not_depend_on_what_others_do(steps: list[tuple[str, str, int, bool]]) -> None:
    both, alone = _Told(), _Told()
    for tenant, what, question, as_body in steps:
        told = both.step(tenant, what, question, as_body)
        if tenant == "a":
            assert told == alone.step(tenant, what, question, as_body)
