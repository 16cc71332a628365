"""Negation and antonyms, which cancel each other out."""

import pytest

from services.cache.core.vetoes.antonyms import Antonyms
from services.cache.core.vetoes.negation import Negation
from services.cache.core.vetoes.text import Text
from tests.unit.services.cache.core.vetoes.judging import REFUSE, VERIFY, judge, severity


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("which paints contain lead", "which paints don't contain lead"),
        ("can I knit with wool", "can I knit without wool"),
        ("should a beginner lift weights", "should a beginner never lift weights"),
        ("which towns can be reached by rail", "which towns cannot be reached by rail"),
        ("whose turn isnt it", "whose turn is it"),
        ("哪些油漆含铅", "哪些油漆不含铅"),
        ("可以带狗吗", "没有狗可以吗"),
        ("请关灯", "请勿关灯"),
    ],
)
def test_a_negation_on_one_side_is_refused(asked, stored):
    assert severity(Negation(), asked, stored) is REFUSE
    assert severity(Negation(), stored, asked) is REFUSE


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("why can't I hear anyone", "why is it that I cannot hear anyone"),
        ("not only trains but buses", "trains and buses"),
        ("tell me whether or not it rains", "tell me whether it rains"),
        ("这件衣服非常贵吗", "这件衣服贵吗"),
        ("特别好吃的面", "好吃的面"),
        ("是不是要预约", "要预约吗"),
        ("贵不贵", "贵吗"),
    ],
)
def test_what_only_looks_like_a_negation_passes(asked, stored):
    assert severity(Negation(), asked, stored) is None


def test_two_negations_are_a_doubt():
    assert severity(Negation(), "you can't enter without a ticket", "you can enter with a ticket") is VERIFY
    assert severity(Negation(), "没有票就不能进", "有票才能进") is VERIFY


def test_a_word_of_failure_may_stand_for_the_negation():
    assert severity(Negation(), "the heater doesn't start", "the heater fails to start") is VERIFY


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("how to enable the alarm", "how to disable the alarm"),
        ("turn the heating on", "turn the heating off"),
        ("log in to the portal", "logging out of the portal"),
        ("is the path safe", "is the path unsafe"),
        ("a hopeful story", "a hopeless story"),
        ("sort ascending", "sort descending"),
        ("how to become more patient", "how to become less patient"),
        ("a wide river", "a narrow river"),
        ("怎么开启闹钟", "怎么关闭闹钟"),
        ("上传照片", "下载照片"),
        ("按升序排", "按降序排"),
        ("水温过高", "水温过低"),
        ("這個門怎麼開", "這個門怎麼關"),
    ],
)
def test_an_opposite_is_refused(asked, stored):
    assert severity(Antonyms(), asked, stored) is REFUSE
    assert severity(Antonyms(), stored, asked) is REFUSE


def test_the_finding_shows_the_pair():
    found = judge(Antonyms(), "how to lock the gate", "how to unlock the gate")
    assert found is not None
    assert (found.asked, found.stored) == ("lock", "unlock")


def test_an_opposite_that_both_texts_have_is_none():
    assert severity(Antonyms(), "lock or unlock the gate", "unlock or lock the gate") is None
    assert severity(Antonyms(), "open the gate", "how is the gate opened") is None


@pytest.mark.parametrize(
    ("asked", "stored"),
    [("a person who is not rude", "a polite person"), ("be less timid and more bold", "be more timid and less bold"),
     ("how to be less sad", "how to be more happy")],
)  # fmt: skip
def test_two_turns_are_a_doubt_or_nothing(asked, stored):
    assert severity(Antonyms(), asked, stored) in (VERIFY, None)
    assert severity(Negation(), asked, stored) in (VERIFY, None)


def test_with_and_without_are_counted_once():
    assert Text("with sugar").negations == ()
    assert severity(Negation(), "tea with sugar", "tea without sugar") is REFUSE
    assert severity(Antonyms(), "tea with sugar", "tea without sugar") is None
