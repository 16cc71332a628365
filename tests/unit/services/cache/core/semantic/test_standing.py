"""What a tenant's standing learns from what."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.cache.core.decide import Comparison
from services.cache.core.semantic.options import SemanticOptions
from services.cache.core.semantic.standing import Ledger, Standing, Standings
from services.cache.core.verifier import Pair
from services.cache.core.vetoes.text import Text

OPTIONS = SemanticOptions(
    threshold="budget",
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


def audit(share: float) -> Comparison:
    return Comparison("e", 0.99, share, None, audit=True)


def test_what_was_found_wrong_in_place_of_being_served_is_debited_and_the_entry_is_compared_each_time() -> None:
    total = Ledger()
    standing = Standing(OPTIONS, total)
    balance = standing.pooled.allowance.balance
    standing.compared(audit(0.8), right=False)
    assert standing.pooled.allowance.balance == pytest.approx(balance - 0.25)
    assert standing.ledger.served_wrong == total.served_wrong == pytest.approx(0.25)
    assert standing.threshold.audit > 0.75
    assert standing.trust.is_due("e")
    standing.compared(replace(audit(0.8), audit=False), right=False)
    assert standing.pooled.allowance.balance == pytest.approx(balance - 0.25)


def test_a_threshold_that_keeps_no_budget_has_no_account() -> None:
    standing = Standing(replace(OPTIONS, threshold=0.9), Ledger())
    balance = standing.pooled.allowance.balance
    standing.compared(audit(0.5), right=False)
    assert standing.pooled.allowance.balance == balance
    assert standing.ledger.served_wrong == 1
    assert (standing.policy.trust, standing.policy.staleness) == (None, None)


def test_a_static_threshold_is_the_number_or_the_encoders_default() -> None:
    """docs/design.md §10.5."""
    for asked_for, multilingual, value, source in (
        (0.9, True, 0.9, "configured"),
        ("static", True, 0.92, "default"),
        ("static", False, 0.87, "default"),
    ):
        options = replace(OPTIONS, threshold=asked_for, multilingual=multilingual)  # type: ignore[arg-type]
        threshold = Standing(options, Ledger()).threshold
        assert (threshold.value, threshold.source) == (value, source)


def test_what_a_tenant_goes_by_changes_while_it_is_served_and_what_was_learned_stays() -> None:
    now = {"acme": OPTIONS}
    standings = Standings(lambda tenant: now.get(tenant, OPTIONS))
    standing = standings.of("acme")
    standing.compared(lesson(True), right=True)
    standing.wrong("e", b"asked", b"stored", 0.95)
    now["acme"] = OPTIONS.of("static", frozenset({"swap", "no such rule"}))
    assert standings.of("acme") is standing
    assert (standing.threshold.value, standing.threshold.source) == (0.92, "default")
    assert standing.options.disabled == ("swap",)
    swapped = standing.policy.chain.judge(Text("How do I paint a shed?"), Text("How do I paint a fence?"))
    assert swapped.doubts == ()
    assert standing.wrong_hits.floor("e") is not None
    assert standings.of("other").threshold.source == "starting"
    now["acme"] = OPTIONS
    assert standings.of("acme").threshold.source == "starting"
