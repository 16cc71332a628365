"""The evaluation of the cache: what its traffic is made of, and that it counts what a policy does."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from benchmarks.cache_eval import made
from benchmarks.cache_eval.data import Asked, LabelledPair, is_reported
from benchmarks.cache_eval.encoder import Encoded
from benchmarks.cache_eval.figures import Rate, interval
from benchmarks.cache_eval.peers import Asking, PeerResult
from benchmarks.cache_eval.shifts import by_subject, shifted
from benchmarks.cache_eval.streams import POLICIES, Policy, Run
from benchmarks.cache_eval.traffic import fixed, of_pairs, questions_of, without_repeats

BY_NAME = {policy.name: policy for policy in POLICIES}


def pair(id_: str, a: str, b: str, reusable: bool) -> LabelledPair:
    return LabelledPair(id_, "kind", a, b, reusable)


def run(policy: Policy, *asked: tuple[str, str], vectors: list[list[float]] | None = None) -> Run:
    rows = np.array(vectors or np.eye(len(asked)), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return policy.run([Asked(*each) for each in asked], rows, 1)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_traffic_has_the_shares_that_were_fixed(language: str) -> None:
    traffic = fixed("made", made.questions(language), 1)
    total = len(traffic.asked)
    assert traffic.repeats / total == pytest.approx(0.32, abs=0.04)
    assert traffic.new / total == pytest.approx(0.20, abs=0.03)
    assert traffic.repeats + traffic.paraphrases + traffic.new == total
    assert len({each.category for each in traffic.asked}) == traffic.new


def test_only_what_counts_as_a_repeat_is_byte_identical() -> None:
    traffic = fixed("made", made.questions("en"), 2)
    texts = [each.text for each in traffic.asked]
    assert len(texts) - len(set(texts)) == traffic.repeats
    exact = BY_NAME["exact"].run(traffic.asked, np.zeros((len(texts), 1), np.float32), 1)
    assert (sum(exact.hits), sum(exact.wrong)) == (traffic.repeats, 0)


def test_traffic_is_the_same_for_the_same_seed_only() -> None:
    def order(seed: int) -> list[Asked]:
        return fixed("made", made.questions("en"), seed).asked

    assert order(1) == order(1) != order(2)


def test_texts_of_a_trap_are_two_questions_and_those_of_a_reusable_pair_one() -> None:
    pairs = [pair("1", "a", "b", True), pair("2", "c", "d", False)]
    traffic = of_pairs("pairs", pairs, 1)
    assert {each.text: each.category for each in traffic.asked if each.text in "cd"} == {"c": "2/a", "d": "2/b"}
    assert {each.category for each in traffic.asked if each.text in "ab"} == {"1"}


def test_without_repeats_every_question_is_another() -> None:
    pairs = [pair("1", "a", "b", True), pair("2", "a", "d", False), pair("3", "e", "f", False)]
    traffic = without_repeats("pairs", questions_of(pairs), 1, alike=True)
    texts = [each.text for each in traffic.asked]
    assert sorted(texts) == ["a", "d", "e", "f"]
    assert traffic.new == len({each.category for each in traffic.asked}) == 4


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("alike", [True, False])
def test_two_wordings_of_one_made_question_are_never_two_questions(language: str, alike: bool) -> None:
    of = {text: question.id for question in made.questions(language) for text in question.wordings}
    traffic = without_repeats("made", made.questions(language), 1, alike=alike)
    assert [of[each.text] for each in traffic.asked] == [each.category for each in traffic.asked]
    assert len({each.category for each in traffic.asked}) == len(traffic.asked) == len(made.questions(language))


def test_what_was_asked_before_counts_for_learning_and_not_for_the_figures() -> None:
    before = [Asked("one", "x")]
    vectors = np.eye(3, dtype=np.float32)
    found = BY_NAME["exact"].run([*before, Asked("one", "x"), Asked("two", "y")], vectors, 1, skip=1)
    assert (found.hits, len(found.threshold)) == ([True, False], 2)


def test_half_of_what_is_made_is_held_out_and_pairs_name_their_half() -> None:
    every, kept = made.questions("en"), made.held_out("en")
    assert len(kept) / len(every) == pytest.approx(0.5, abs=0.1)
    assert all(is_reported(question.id) for question in kept)


def test_made_traps_are_of_other_questions_and_reusable_pairs_of_one() -> None:
    of = {text: question.id for question in made.questions("en") for text in question.wordings}
    for each in made.pairs("en"):
        assert (of[each.a] == of[each.b]) is each.reusable
        assert each.a != each.b


def test_a_hit_is_right_when_the_category_is_the_same() -> None:
    near = [[1.0, 0.0], [1.0, 0.1], [1.0, -0.1]]
    found = run(BY_NAME["0.92, no rules"], ("one", "x"), ("two", "x"), ("three", "y"), vectors=near)
    assert (found.hits, found.wrong) == ([False, True, True], [False, False, True])


def test_levels_answer_what_is_theirs() -> None:
    asked = (("What is DNS?", "x"), ("what is dns", "x"), ("What is DNS?", "x"))
    assert run(BY_NAME["exact"], *asked).hits == [False, False, True]
    assert run(BY_NAME["exact + folded"], *asked).hits == [False, True, True]


def test_rules_refuse_what_a_threshold_alone_serves() -> None:
    asked = (("How do I enable it?", "on"), ("How do I disable it?", "off"))
    near = [[1.0, 0.0], [1.0, 0.05]]
    assert run(BY_NAME["0.92, no rules"], *asked, vectors=near).wrong == [False, True]
    assert run(BY_NAME["0.92, rules"], *asked, vectors=near).hits == [False, False]


def test_intervals_are_wilsons() -> None:
    low, high = interval(5, 100)
    assert (round(low, 2), round(high, 2)) == (2.15, 11.18)
    assert interval(0, 0) == (0.0, 100.0)
    assert str(Rate(0, 100)) == str(Rate(0, 300, orders=3)) == "0.0 (0.0–3.7)"


class Letters:
    """Counts what it is asked; a vector for each text."""

    name = "letters"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, texts: list[str]) -> np.ndarray:
        self.asked += texts
        return np.array([[len(text), text.count("a"), 1] for text in texts], np.float32)


def test_a_text_is_encoded_once_in_all_runs_and_a_run_that_was_ended_loses_nothing_whole(tmp_path: Path) -> None:
    texts = ["a" * number for number in range(1, 80)]
    first = Letters()
    whole = Encoded(first, "x", tmp_path).of(texts)
    assert sorted(first.asked) == texts
    second = Letters()
    again = Encoded(second, "x", tmp_path)
    assert np.array_equal(again.of([*texts, "new", "a"]), [*whole, [3, 0, 1], whole[0]])
    assert second.asked == ["new"]
    # Ended between the vectors of a batch and its texts, and in a text.
    (rows,), (lines,) = tmp_path.glob("*.f32"), tmp_path.glob("*.jsonl")
    rows.write_bytes(rows.read_bytes() + bytes(12))
    lines.write_bytes(lines.read_bytes() + b'"hal')
    third = Letters()
    assert np.array_equal(Encoded(third, "x", tmp_path).of(["a", "new", "half"]), [whole[0], [3, 0, 1], [4, 1, 1]])
    assert third.asked == ["half"]
    assert np.array_equal(Encoded(third, "x", tmp_path).of(["half"]), [[4, 1, 1]])
    assert third.asked == ["half"]


def test_two_runs_over_one_folder_keep_the_vectors_of_both(tmp_path: Path) -> None:
    encoders = [Letters(), Letters()]
    one, other = (Encoded(each, "x", tmp_path) for each in encoders)
    one.of(["a", "bb"])
    other.of(["bb", "aaa"])
    one.of(["aaa", "c"])
    assert [each.asked for each in encoders] == [["a", "bb", "c"], ["aaa"]]
    assert np.array_equal(Encoded(Letters(), "x", tmp_path).of(["a", "aaa", "c"]), [[1, 1, 1], [3, 3, 1], [1, 0, 1]])


def test_what_other_caches_answered_is_told_to_who_asked() -> None:
    asking = Asking()
    places = [asking.add_pairs([pair("1", "a", "b", True)]), asking.add_pairs([pair("1", "c", "d", False)])]
    assert asking.add_stream([Asked("a", "x")]) == 0
    asking.answers = {"other": PeerResult("", [True, False], [Run(hits=[True])])}
    assert [asking.pairs_of(place) for place in places] == [{"other": {"1": True}}, {"other": {"1": False}}]
    assert asking.stream_of(0)["other"].hits == [True]


def test_what_a_cache_was_not_through_with_has_no_row() -> None:
    asking = Asking()
    place = asking.add_pairs([pair("1", "a", "b", True)])
    asking.add_stream([Asked("a", "x")])
    asking.answers = {"slow": PeerResult("", None, [None]), "other": PeerResult("", [True], [Run(hits=[True])])}
    assert asking.pairs_of(place) == {"other": {"1": True}}
    assert list(asking.stream_of(0)) == ["other"]


def test_subjects_come_one_after_the_other_and_nothing_is_lost() -> None:
    stream = [Asked(f"{category} {number}", category) for number in range(5) for category in "abcdef"]
    for said, orders in shifted(stream, 2).items():
        assert len({tuple(order) for order in orders}) == 2, said
        for order in orders:
            assert sorted(order, key=str) == sorted(stream, key=str)
    changes = [sum(a.category != b.category for a, b in pairwise(by_subject(stream, 1, n))) for n in (1, 6)]
    assert changes[0] == 5 < changes[1]
    first, second = set(), set()
    for place, each in enumerate(by_subject(stream, 1, 3)):
        (first if place < 15 else second).add(each.category)
    assert not first & second
