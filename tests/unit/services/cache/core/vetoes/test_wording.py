"""Swaps, insertions, scope and the form of the answer; slips of the keyboard."""

import pytest

from services.cache.core.vetoes.formats import Formats
from services.cache.core.vetoes.insertion import Insertion
from services.cache.core.vetoes.scope import Scope
from services.cache.core.vetoes.stem import is_slip, stem
from services.cache.core.vetoes.swap import Swap
from tests.unit.services.cache.core.vetoes.judging import REFUSE, VERIFY, judge, severity


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("how do I water a fern", "how do I water a cactus"),
        ("repair the roof gutter", "repair the garden fence"),
        ("怎么养金鱼", "怎么养鹦鹉"),
    ],
)
def test_a_word_in_place_of_another_is_a_doubt(asked, stored):
    assert severity(Swap(), asked, stored) is VERIFY
    assert severity(Swap(), stored, asked) is VERIFY


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("how do I water a fern", "how can I water my ferns please"),
        ("the libary is closed", "the library is closed"),
        ("recieve a parcel", "receive a parcel"),
        ("hide the garden path, hedge and pond", "which sailing boats cross oceans alone"),
        ("请问怎么养金鱼", "如何养金鱼呢"),
        ("the price of a parcel", "the cost of a package"),
        ("organise the colours", "organize the colors"),
        ("怎么修改名字", "怎么更改名字"),
    ],
)
def test_grammar_slips_and_altogether_other_words_are_no_swap(asked, stored):
    assert severity(Swap(), asked, stored) is None


def test_more_words_on_one_side_are_a_doubt_but_not_politeness():
    assert severity(Insertion(), "how do I prune a rose", "how do I prune a climbing rose") is VERIFY
    assert severity(Insertion(), "如何修剪玫瑰", "如何修剪爬藤玫瑰") is VERIFY
    assert severity(Insertion(), "how do I prune a rose", "Hi, sorry, um, how do I prune a rose? Thanks") is None
    assert severity(Insertion(), "如何修剪玫瑰", "您好，请问如何修剪玫瑰呢？谢谢") is None


def test_a_word_of_scope_on_one_side_is_a_doubt():
    found = judge(Scope(), "which hikes are easy", "which hikes are easy for toddlers")
    assert found is not None
    assert (found.asked, found.stored, found.severity) == ("", "toddler", VERIFY)
    assert severity(Scope(), "可以泡温泉吗", "孕妇可以泡温泉吗") is VERIFY
    assert severity(Scope(), "an overseas parcel", "a parcel overseas") is None
    assert severity(Scope(), "a vegetarian stew", "a vegitarian stew") is None


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("list the planets as JSON", "list the planets"),
        ("explain tides in one sentence", "explain tides in detail"),
        ("answer in French", "answer in German"),
        ("用一句话解释潮汐", "详细解释潮汐"),
        ("用英文介绍潮汐", "介绍潮汐"),
    ],
)
def test_another_form_of_the_answer_is_refused(asked, stored):
    assert severity(Formats(), asked, stored) is REFUSE
    assert severity(Formats(), stored, asked) is REFUSE


def test_the_same_form_in_other_words_passes():
    assert severity(Formats(), "briefly, what are tides", "in short: what are tides") is None
    assert severity(Formats(), "简要介绍潮汐", "简单说说潮汐") is None


@pytest.mark.parametrize(
    "words", ["plan plans planned planning", "copy copies copied", "child children kids", "charge charged charging"]
)
def test_forms_of_a_word_have_one_stem(words):
    assert len({stem(word) for word in words.split()}) == 1


def test_words_that_only_look_like_forms_keep_their_stems():
    assert stem("evening") != stem("even")
    assert stem("bus") == "bus"
    assert stem("address") == "address"
    assert stem("跑步") == "跑步"


@pytest.mark.parametrize(("one", "other"), [("garden", "gardn"), ("garden", "gadren"), ("gardener", "gardenar")])
def test_a_slip_is_a_letter_too_many_or_two_in_the_wrong_order(one, other):
    assert is_slip(one, other)
    assert is_slip(other, one)


@pytest.mark.parametrize(
    ("one", "other"), [("nitrite", "nitrate"), ("cat", "cut"), ("zambia", "gambia"), ("hypo", "hyper")]
)
def test_another_word_is_no_slip(one, other):
    assert not is_slip(one, other)
    assert not is_slip(other, one)
