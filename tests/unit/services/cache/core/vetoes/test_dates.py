import pytest

from services.cache.core.vetoes.dates import Dates, tense
from services.cache.core.vetoes.text import Text
from tests.unit.services.cache.core.vetoes.judging import REFUSE, VERIFY, judge, severity


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("is the museum open on Mondays", "is the museum open on Thursdays"),
        ("the gardens in April", "the gardens in October"),
        ("the gardens in April", "the gardens"),
        ("what is on tonight", "what is on tomorrow"),
        ("sales last month", "sales next month"),
        ("may I swim before lunch", "may I swim after lunch"),
        ("a lesson each morning", "a lesson each evening"),
        ("what is the fee per month", "what is the fee per year"),
        ("Was the mayor a baker?", "Is the mayor a baker?"),
        ("周三开门吗", "周六开门吗"),
        ("四月的花展", "九月的花展"),
        ("4月的花展", "九月份的花展"),
        ("明天下雨吗", "昨天下雨吗"),
        ("饭前吃药", "饭后吃药"),
    ],
)
def test_another_time_is_refused(asked, stored):
    assert severity(Dates(), asked, stored) is REFUSE
    assert severity(Dates(), stored, asked) is REFUSE


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("is the museum open on Monday", "does the museum open on Mondays"),
        ("what is on today", "what is on"),
        ("take it prior to a meal", "take it before a meal"),
        ("may I park here", "can I park here"),
        ("星期三开门吗", "周三开门吗"),
        ("九月的花展", "9 月份的花展"),
    ],
)
def test_the_same_time_in_other_words_passes(asked, stored):
    assert severity(Dates(), asked, stored) is None
    assert severity(Dates(), stored, asked) is None


def test_a_part_of_the_day_or_another_tense_on_one_side_is_a_doubt():
    assert severity(Dates(), "is the pool quiet in the morning", "is the pool quiet") is VERIFY
    assert severity(Dates(), "my parcel was sent back, why", "why is the package I ordered returned") is VERIFY


def test_may_is_a_month_only_where_a_month_can_stand():
    found = judge(Dates(), "concerts in May", "concerts in July")
    assert found is not None
    assert (found.asked, found.stored) == ("5", "7")
    assert Text("may I come in").times == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("was it open", "past"), ("is it open", "present"), ("will it open", "future"), ("opening hours", ""),
     ("did she use to sing", "past"), ("is it what it was", ""), ("已经寄出", "past")],
)  # fmt: skip
def test_the_tense_is_that_of_the_auxiliary(text, expected):
    assert tense(Text(text)) == expected
