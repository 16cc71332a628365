import math
from dataclasses import replace

import pytest

from services.cache.core.decide import Asked, Candidate, Decision, Outcome, Policy, decide
from services.cache.core.refinement import Curve, Refinement, Seen
from services.cache.core.staleness import Staleness
from services.cache.core.threshold import CLOSED, Threshold
from services.cache.core.trust import Trust
from services.cache.core.verifier import UNAVAILABLE, UNTRAINED, Opinion
from services.cache.core.vetoes.chain import Chain
from services.cache.core.vetoes.text import Text
from services.cache.core.wrong_hits import WrongHits

QUESTION = "how do I prune a rose"
SAME = "how can I prune roses?"
OPPOSITE = "how do I not prune a rose"
NARROWER = "how do I prune a climbing rose"
NO_DRAW = 0.99


def candidate(text: str, similarity: float, entry: str = "") -> Candidate:
    return Candidate(entry or text, text.encode(), Text(text), similarity)


def ask(draw: float = NO_DRAW, least: float | None = None, text: str = QUESTION) -> Asked:
    return Asked(text.encode(), Text(text), draw, least)


def policy(value: float = 0.9, audit: float = 0.0, wrong_hits: WrongHits | None = None, **other: object) -> Policy:
    return Policy(Chain(), Threshold(value, "controlled", audit=audit), wrong_hits or WrongHits(), **other)  # type: ignore[arg-type]


def reasons(decision: Decision) -> list[str]:
    return [each.reason for each in decision.judged]


def test_the_nearest_clean_candidate_is_served():
    decision = decide([candidate(SAME, 0.95)], ask(), policy())
    assert (decision.outcome, decision.reason, decision.entry, decision.similarity) == (
        Outcome.SERVE,
        "hit",
        SAME,
        0.95,
    )
    assert decision.compare == ()


def test_without_candidates_it_is_a_miss():
    assert decide([], ask(), policy()).reason == "no_candidates"


def test_the_nearest_may_be_a_trap_and_the_next_one_right():
    decision = decide([candidate(SAME, 0.93), candidate(OPPOSITE, 0.98)], ask(), policy())
    assert (decision.outcome, decision.entry) == (Outcome.SERVE, SAME)
    assert reasons(decision) == ["refused", "hit"]
    refused = decision.judged[0]
    assert (refused.findings[0].rule, refused.findings[0].asked, refused.findings[0].stored) == ("negation", "", "not")


def test_five_are_tried_and_no_more():
    traps = [candidate(OPPOSITE, 0.99 - i / 1000, f"trap-{i}") for i in range(5)]
    decision = decide([*traps, candidate(SAME, 0.95)], ask(), policy())
    assert decision.outcome is Outcome.MISS
    assert len(decision.judged) == 5


@pytest.mark.parametrize(
    ("threshold", "similarity", "outcome"),
    [
        (0.0, 0.0, Outcome.SERVE),
        (0.0, -0.5, Outcome.MISS),
        (1.0, 1.0, Outcome.SERVE),
        (1.0, 1.00001, Outcome.SERVE),
        (1.0, 0.99999, Outcome.MISS),
        (0.9, 0.9, Outcome.SERVE),
        (CLOSED, 1.0, Outcome.MISS),
    ],
)
def test_thresholds_at_their_ends(threshold, similarity, outcome):
    assert decide([candidate(SAME, similarity)], ask(), policy(threshold)).outcome is outcome


@pytest.mark.parametrize("similarity", [math.nan, math.inf, -math.inf, 1.5])
def test_what_is_no_cosine_is_never_served_and_spoils_no_other(similarity):
    decision = decide([candidate(SAME, similarity, "odd"), candidate(SAME, 0.95, "good")], ask(), policy(0.0))
    assert decision.entry == "good"
    assert decide([candidate(SAME, similarity)], ask(), policy(0.0)).reason == "not_a_similarity"


@pytest.mark.parametrize(
    ("least", "outcome", "reason"),
    [
        (None, Outcome.SERVE, "hit"),
        (0.0, Outcome.SERVE, "hit"),
        (0.5, Outcome.SERVE, "hit"),
        (0.97, Outcome.MISS, "below_request_threshold"),
        (1.0, Outcome.MISS, "below_request_threshold"),
    ],
)
def test_a_request_raises_the_threshold_and_never_lowers_it(least, outcome, reason):
    decision = decide([candidate(SAME, 0.95)], ask(least=least), policy())
    assert (decision.outcome, decision.reason) == (outcome, reason)
    assert decide([candidate(SAME, 0.85)], ask(least=least), policy()).outcome is Outcome.MISS


def test_an_entry_that_was_wrong_has_a_floor_of_its_own():
    wrong = WrongHits()
    wrong.report("bad", b"another question", SAME.encode(), 0.94)
    decision = decide([candidate(SAME, 0.95, "bad"), candidate(SAME, 0.93, "good")], ask(), policy(wrong_hits=wrong))
    assert decision.entry == "good"
    assert (decision.judged[0].reason, decision.judged[0].needed) == ("below_entry_floor", pytest.approx(0.96))


def test_a_denied_pair_is_not_served_from_a_new_entry_either():
    wrong = WrongHits()
    wrong.report("old", QUESTION.encode(), SAME.encode(), 0.94)
    wrong.report("old", b"another question", SAME.encode(), 0.94)
    decision = decide([candidate(SAME, 1.0, "new")], ask(), policy(wrong_hits=wrong))
    assert (decision.outcome, decision.reason) == (Outcome.MISS, "denied")


def test_a_text_that_was_not_read_to_its_end_is_never_served():
    long = QUESTION + " please" * 2_000
    decision = decide([candidate(long, 1.0)], ask(text=long), policy())
    assert (decision.outcome, decision.reason) == (Outcome.MISS, "too_long")


def test_a_doubted_candidate_goes_to_the_verifier_and_the_decision_is_made_again():
    nearest = [candidate(NARROWER, 0.97)]
    decision = decide(nearest, ask(), policy())
    assert (decision.outcome, decision.reason, decision.entry) == (Outcome.VERIFY, "to_verify", NARROWER)
    assert decision.pair is not None
    assert [finding.rule for finding in decision.pair.doubts] == ["insertion"]
    sure = decide(nearest, ask(), policy(), {NARROWER: Opinion(0.9, "verified")})
    assert (sure.outcome, sure.reason, sure.judged[0].probability) == (Outcome.SERVE, "verified", 0.9)


@pytest.mark.parametrize(
    ("opinion", "reason"),
    [
        (Opinion(0.89, "verified"), "doubted"),
        (Opinion(0.0, "verified"), "doubted"),
        (Opinion(math.nan, "verified"), "verifier_unavailable"),
        (Opinion(1.5, "verified"), "verifier_unavailable"),
        (UNTRAINED, "verifier_untrained"),
        (UNAVAILABLE, "verifier_unavailable"),
    ],
)
def test_h6_without_a_sure_verifier_a_doubted_candidate_is_a_miss_and_the_next_one_is_tried(opinion, reason):
    decision = decide([candidate(NARROWER, 0.97)], ask(), policy(), {NARROWER: opinion})
    assert (decision.outcome, decision.reason) == (Outcome.MISS, reason)
    both = decide([candidate(NARROWER, 0.97), candidate(SAME, 0.95)], ask(), policy(), {NARROWER: opinion})
    assert (both.outcome, both.entry) == (Outcome.SERVE, SAME)


def test_the_verifier_is_asked_about_one_candidate_only():
    pair = [candidate(NARROWER, 0.98, "near"), candidate("how do I prune a yellow rose", 0.97, "next")]
    opinions = {"near": Opinion(0.1, "verified"), "next": Opinion(0.99, "verified")}
    decision = decide(pair, ask(), policy(), opinions)
    assert decision.outcome is Outcome.MISS
    assert reasons(decision) == ["doubted", "not_asked"]
    assert decision.judged[1].findings[0].rule == "insertion"


def test_below_the_threshold_no_verifier_is_asked():
    decision = decide([candidate(NARROWER, 0.85)], ask(), policy())
    assert (decision.outcome, decision.reason) == (Outcome.MISS, "below_threshold")


@pytest.mark.parametrize(
    ("audit", "draw", "outcome", "share"),
    [
        (0.0, 0.04, Outcome.AUDIT, 0.05),
        (0.0, 0.05, Outcome.SERVE, None),
        (0.75, 0.74, Outcome.AUDIT, 0.75),
        (0.75, 0.75, Outcome.SERVE, None),
    ],
)
def test_a_share_of_would_be_hits_is_audited_and_more_where_the_threshold_asks_for_it(audit, draw, outcome, share):
    decision = decide([candidate(SAME, 0.95)], ask(draw), policy(audit=audit))
    assert decision.outcome is outcome
    assert [each.share for each in decision.compare] == ([] if share is None else [share])
    assert all(each.pair is None and not each.beside for each in decision.compare)


def test_a_share_of_misses_is_compared_with_what_no_rule_refused():
    nearest = [candidate(OPPOSITE, 0.89), candidate(NARROWER, 0.88), candidate(SAME, 0.87)]
    assert decide(nearest, ask(0.30), policy()).compare == ()
    compare = decide(nearest, ask(0.29), policy()).compare
    assert [(each.entry, each.share, each.pair is None, each.beside) for each in compare] == [
        (SAME, 0.30, True, False),
        (NARROWER, 0.30, False, True),
    ]


def test_a_comparison_becomes_a_label_with_what_the_verifier_said():
    audited = decide([candidate(NARROWER, 0.97)], ask(0.01), policy(), {NARROWER: Opinion(0.95, "verified")})
    (label,) = [each.label(False) for each in audited.compare]
    assert (label.similarity, label.right, label.share, label.probability) == (0.97, False, 0.05, 0.95)
    assert label.row is not None
    clean, doubted = decide([candidate(NARROWER, 0.88), candidate(SAME, 0.87)], ask(0.29), policy()).compare
    assert clean.label(True).row is None
    assert doubted.label(True).probability is None
    assert doubted.label(True).beside


def test_in_shadow_nothing_is_served_and_hits_are_compared_as_often_as_misses():
    decision = decide([candidate(SAME, 0.95)], ask(0.29), policy(shadow=True))
    assert (decision.outcome, decision.reason, decision.shadow) == (Outcome.MISS, "hit", True)
    assert [each.share for each in decision.compare] == [0.30]
    assert not decide([candidate(SAME, 0.85)], ask(), policy(shadow=True)).shadow


def test_a_rule_that_a_tenant_switched_off_refuses_nothing():
    lenient = Policy(Chain({"negation"}), Threshold(0.9, "configured"), WrongHits())
    assert decide([candidate(OPPOSITE, 0.95)], ask(), lenient).outcome is Outcome.SERVE


def test_equal_similarities_are_tried_in_one_order():
    pair = [candidate(SAME, 0.95, "b"), candidate(SAME, 0.95, "a")]
    assert decide(pair, ask(), policy()).entry == decide(pair[::-1], ask(), policy()).entry == "a"


def test_a_lesson_is_for_the_verifier_alone_and_drawn_among_what_is_not_compared_anyway() -> None:
    policy = Policy(Chain(), Threshold(0.99, "starting"), WrongHits(), compare_share=0.3, lesson_share=1.0)
    near = [
        Candidate("clean", b"c", Text("How can I reset it?"), 0.95),
        Candidate("doubted", b"d", Text("How do I reset it with a hammer?"), 0.94),
    ]

    def compared(draw: float, policy: Policy = policy) -> list[tuple[str, bool]]:
        decision = decide(near, Asked(b"q", Text("How do I reset it?"), draw), policy)
        return [(each.entry, each.lesson) for each in decision.compare]

    assert compared(0.29) == [("clean", False), ("doubted", False)]
    assert compared(0.30) == compared(0.99) == [("doubted", True)]
    assert compared(0.30, replace(policy, lesson_share=0.0)) == []


def test_what_is_known_of_an_entry_moves_its_threshold_and_the_label_says_what_was_decided_by():
    known = Refinement()
    known.curve = Curve(0.9, 60)
    for _ in range(6):
        known.take("good", Seen(0.89, True))
        known.take("bad", Seen(0.97, False))
    shifts = known.shift("good"), known.shift("bad")
    assert shifts[0] > 0.005 > -0.005 > shifts[1]
    served = decide([candidate(SAME, 0.9 - shifts[0] / 2, "good")], ask(), policy(0.9, refinement=known))
    assert (served.outcome, served.judged[0].needed) == (Outcome.SERVE, pytest.approx(0.9 - shifts[0]))
    refused = decide(
        [candidate(SAME, 0.9 - shifts[1] / 2, "bad")], ask(0.1), policy(0.9, refinement=known, compare_share=1)
    )
    assert refused.reason == "below_threshold"
    (comparison,) = refused.compare
    # By the shifted similarity the threshold is found: so the budget is kept whatever shifts are worth.
    assert comparison.label(True).similarity == pytest.approx(0.9 + shifts[1] / 2)
    assert comparison.similarity == pytest.approx(0.9 - shifts[1] / 2)
    # What a caller asks for is asked of the similarity itself.
    assert (
        decide([candidate(SAME, 0.895, "good")], ask(least=0.9), policy(0.5, refinement=known)).outcome is Outcome.MISS
    )


def test_an_entry_that_is_due_is_compared_for_certain_and_others_as_before():
    trust = Trust()
    trust.compared(SAME, right=False)
    due = decide([candidate(SAME, 0.95)], ask(), policy(trust=trust))
    assert (due.outcome, due.share, due.compare[0].share, due.compare[0].audit) == (Outcome.AUDIT, 1.0, 1.0, True)
    other = decide([candidate(SAME, 0.95, "other")], ask(), policy(trust=trust))
    assert (other.outcome, other.share) == (Outcome.SERVE, 0.05)


def test_in_shadow_nothing_counts_as_found_in_place_of_being_served():
    decision = decide([candidate(SAME, 0.95)], ask(0.0), policy(shadow=True))
    assert [each.audit for each in decision.compare] == [False]


def test_what_nobody_has_needed_for_long_has_to_be_more_alike_where_that_was_learned():
    staleness = Staleness()
    for number in range(300):
        similarity, entry = 0.9 + number % 100 / 1000, "fresh" if number % 2 else "stale"
        staleness.used("fresh", 1_000)
        staleness.take(entry, 1_000, Seen(similarity, entry == "fresh" or similarity > 0.98))
    known = policy(0.95, staleness=staleness, now=1_000)
    assert known.shift("stale") < 0 < known.shift("fresh")
    for entry, reason in (("stale", "below_threshold"), ("fresh", "hit")):
        decision = decide([candidate(SAME, 0.95, entry)], ask(0.0), known)
        assert decision.judged[0].needed == pytest.approx(0.95 - known.shift(entry))
        assert decision.reason == reason
        assert [each.shift for each in decision.compare] == [known.shift(entry)]
