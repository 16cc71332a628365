"""What a tenant's standing learns from what."""

from __future__ import annotations

from dataclasses import replace

from services.cache.core.decide import Comparison
from services.cache.core.semantic.options import SemanticOptions
from services.cache.core.semantic.standing import Ledger, Standing
from services.cache.core.verifier import Pair
from services.cache.core.vetoes.text import Text

OPTIONS = SemanticOptions(
    threshold=None,
    multilingual=True,
    budget=0.01,
    audit_share=0.05,
    compare_share=0.3,
    shadow=False,
    disabled=(),
)


def lesson(right: bool) -> Comparison:
    stored = Text("How can I reset it?" if right else "How do I paint the shed with a hammer?")
    return Comparison("e", 0.9, 0.3, Pair(Text("How do I reset it?"), stored, 0.9, ()), lesson=True)


def test_lessons_train_the_verifier_and_do_not_move_the_threshold() -> None:
    standing = Standing(OPTIONS, Ledger())
    assert standing.policy.lesson_share == 1.0
    for number in range(200):
        standing.compared(lesson(number % 2 == 0), right=number % 2 == 0)
    assert standing.pooled.labels == ()
    taught = standing.lesson()
    assert taught is not None
    assert standing.verifier.fit(taught)
    assert standing.policy.lesson_share == 0.0


def test_who_learns_nothing_for_long_is_not_taught_for_ever() -> None:
    standing = Standing(OPTIONS, Ledger())
    for _ in range(1_000):
        standing.compared(lesson(True), right=True)
    assert standing.policy.lesson_share == 0.0


def test_there_are_no_lessons_where_nothing_is_to_be_compared() -> None:
    for options in (replace(OPTIONS, threshold=0.92), replace(OPTIONS, compare_share=0.0)):
        assert Standing(options, Ledger()).policy.lesson_share == 0.0
