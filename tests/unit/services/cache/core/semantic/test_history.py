"""What is told of the threshold and of refused questions: bounded, the first and the last kept."""

from __future__ import annotations

from services.cache.core.decide import Decision, Judged, Outcome
from services.cache.core.semantic.history import MOST_POINTS, MOST_REFUSED, History
from services.cache.core.threshold import CLOSED, Threshold
from services.cache.core.vetoes.finding import Finding, Severity

FINDING = Finding("numbers", "3", "4", Severity.REFUSE)


def decision(*judged: Judged) -> Decision:
    return Decision(Outcome.MISS, "refused", Threshold(0.9, "controlled"), judged)


def refused(entry: str, similarity: float = 0.95) -> Judged:
    return Judged(entry, similarity, 0.9, "refused", (FINDING,))


def test_a_point_is_kept_where_the_threshold_moves() -> None:
    history = History()
    for threshold in (Threshold(0.97, "starting"), Threshold(0.97, "starting"), Threshold(CLOSED, "closed")):
        history.decided("q", decision(), {}, threshold)
    assert [(point.question, point.threshold, point.source) for point in history.points] == [
        (1, 0.97, "starting"),
        (3, None, "closed"),
    ]


def test_of_too_many_points_every_other_one_stays_with_the_last() -> None:
    history = History()
    for number in range(3 * MOST_POINTS):
        history.decided("q", decision(), {}, Threshold(number / 1000, "controlled", 0.01))
    assert len(history.points) <= MOST_POINTS
    assert history.points[0].question == 1
    assert history.points[-1].question == 3 * MOST_POINTS


def test_the_nearest_refused_question_is_kept_with_its_rule_and_both_texts() -> None:
    history = History()
    history.decided("Is it 3?", decision(refused("a"), refused("b")), {"a": "Is it 4?"}, Threshold(0.9, "controlled"))
    (kept,) = history.refused
    assert (kept.question, kept.near, kept.rule, kept.asked, kept.stored) == (
        "Is it 3?",
        "Is it 4?",
        "numbers",
        "3",
        "4",
    )


def test_what_was_not_near_enough_anyway_is_not_told() -> None:
    history = History()
    history.decided("q", decision(refused("a", 0.5)), {}, Threshold(0.9, "controlled"))
    assert not history.refused


def test_only_the_last_ones_are_kept_and_not_all_of_a_long_text() -> None:
    history = History()
    for number in range(MOST_REFUSED + 5):
        history.decided(
            f"{number} " + "x" * 5000, decision(refused("a")), {"a": "y" * 5000}, Threshold(0.9, "controlled")
        )
    assert len(history.refused) == MOST_REFUSED
    assert history.refused[0].question.startswith("5 ")
    assert max(len(each.question) + len(each.near) for each in history.refused) == 400
