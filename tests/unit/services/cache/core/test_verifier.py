import random

import pytest

from services.cache.core.features import NAMES, differing, features
from services.cache.core.labels import Label, Row
from services.cache.core.verifier import FeatureVerifier, Pair, row_of
from services.cache.core.vetoes.chain import Chain
from services.cache.core.vetoes.text import Text


def row(similarity: float, words: bytes = b"") -> Row:
    return Row((similarity, *[0.5] * (len(NAMES) - 1)), words)


def label(similarity: float, right: bool, share: float = 1.0) -> Label:
    return Label(similarity, right, share, row(similarity))


def labels(count: int, seed: int = 1, edge: float = 0.93) -> list[Label]:
    """Right above an edge with few exceptions, wrong below."""
    draws = random.Random(seed)
    found = []
    for _ in range(count):
        similarity = 0.86 + 0.14 * draws.random()
        found.append(label(similarity, (similarity > edge) != (draws.random() < 0.05)))
    return found


def test_untrained_it_has_no_opinion():
    verifier = FeatureVerifier()
    assert not verifier.trained
    assert verifier.estimate_of(row(0.99)) is None


@pytest.mark.parametrize(
    "few",
    [
        labels(199),
        [label(0.9, True)] * 500,
        [*[label(0.9, True)] * 500, *[label(0.9, False)] * 39],
    ],
    ids=["too few", "all right", "too few wrong"],
)
def test_too_few_labels_of_either_kind_teach_nothing(few):
    verifier = FeatureVerifier()
    assert not verifier.fit(few)
    assert not verifier.trained


def test_it_learns_where_answers_are_right():
    verifier = FeatureVerifier()
    assert verifier.fit(labels(600))
    low, middle, high = (verifier.estimate_of(row(similarity)) for similarity in (0.87, 0.93, 0.99))
    assert low is not None
    assert middle is not None
    assert high is not None
    assert low < 0.1 < middle < 0.9 < high


def test_the_last_labels_count_when_there_are_too_many():
    verifier = FeatureVerifier()
    verifier.fit([*labels(2_000, edge=0.88), *labels(3_000, edge=0.97)])
    drifted = verifier.estimate_of(row(0.93))
    assert drifted is not None
    assert drifted < 0.5


def test_labels_drawn_rarely_weigh_more():
    rare = [label(0.95, False, share=0.05)] * 50
    often = [label(0.95, True, share=1.0)] * 250
    spread = labels(200)
    weighted, plain = FeatureVerifier(), FeatureVerifier()
    weighted.fit([*rare, *often, *spread])
    plain.fit([*[label(0.95, False)] * 50, *often, *spread])
    assert (weighted.estimate_of(row(0.95)) or 0) < (plain.estimate_of(row(0.95)) or 0)


def test_separable_and_constant_labels_do_not_blow_it_up():
    verifier = FeatureVerifier()
    assert verifier.fit([label(0.99, True)] * 150 + [label(0.9, False)] * 150)
    assert 0.5 < (verifier.estimate_of(row(0.99)) or 0) <= 1
    assert verifier.fit([label(0.9, True)] * 150 + [label(0.9, False)] * 150)
    assert verifier.estimate_of(row(0.9)) == pytest.approx(0.5, abs=0.01)


def test_clean_labels_teach_nothing():
    verifier = FeatureVerifier()
    assert not verifier.fit([Label(each.similarity, each.right, 1.0) for each in labels(600)])


def test_each_label_gets_the_probability_of_a_model_that_did_not_learn_from_it():
    odd = label(0.99, False)
    found = [*labels(300), odd]
    assert FeatureVerifier().fit(found)
    assert all(each.probability is not None and 0 <= each.probability <= 1 for each in found)
    assert odd.probability is not None
    assert odd.probability > 0.9  # nobody told that model that this one is wrong
    assert odd.is_open()
    assert not label(0.99, True).is_open()


async def test_the_port_gives_the_same_as_the_model():
    verifier = FeatureVerifier()
    asked, stored = Text("how do I prune a rose"), Text("how do I prune a climbing rose")
    pair = Pair(asked, stored, 0.96, Chain().judge(asked, stored).doubts)
    assert await verifier.probability(pair) is None
    verifier.fit(labels(600))
    assert await verifier.probability(pair) == verifier.estimate(pair)
    assert verifier.estimate(pair) == verifier.estimate_of(row_of(pair))


def test_which_words_change_an_answer_is_learned_by_the_word():
    """The same numbers throughout: only which word is the other one tells."""
    harmless, telling, never_seen = b"\x05", b"\x09", b"\x77"
    found = [Label(0.95, word == harmless, 1.0, row(0.95, word)) for word in (harmless, telling) * 150]
    verifier = FeatureVerifier()
    assert verifier.fit(found)
    chances = [verifier.estimate_of(row(0.95, word)) or 0 for word in (telling, telling + never_seen, harmless)]
    assert chances[0] < 0.1 < 0.9 < chances[2]
    assert verifier.estimate_of(row(0.95, never_seen)) == pytest.approx(0.5, abs=0.05)
    assert chances[1] == pytest.approx(chances[0], abs=0.01)


def test_words_that_differ_are_named_by_numbers_that_depend_on_the_words_alone():
    roses, hedges, shed = (Text(f"how do I {what}") for what in ("prune a rose", "prune a hedge", "paint a shed"))
    assert differing(roses, hedges) == differing(hedges, roses)
    assert len(differing(roses, hedges)) == 2
    assert set(differing(roses, hedges)) & set(differing(roses, shed))  # "rose"
    assert differing(roses, roses) == b""


def test_features_say_what_differs():
    asked, stored = Text("how do I prune a rose"), Text("how do I prune a climbing rose")
    found = dict(zip(NAMES, features(asked, stored, 0.96, Chain().judge(asked, stored).doubts), strict=True))
    assert found["similarity"] == 0.96
    assert (found["only_here"], found["only_there"], found["shared"]) == (0, 1, 2)
    assert found["content_overlap"] == pytest.approx(2 / 3)
    assert (found["doubt_insertion"], found["doubt_swap"], found["doubt_scope"]) == (1, 0, 0)
    same = dict(zip(NAMES, features(asked, asked, 1.0, ()), strict=True))
    assert same["bigram_overlap"] == same["length_ratio"] == 1.0
