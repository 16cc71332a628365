"""Folding takes away how a question is typed, and none of its words, numbers and signs."""

from __future__ import annotations

import random
import re
import unicodedata

from hypothesis import assume, given
from hypothesis import strategies as st

from streamway.cachekey.folded import folded
from streamway.cachekey.simplified import SIMPLIFIED

# No word that greets, thanks, asks kindly or is about words.
WORDS = (
    "how do does i the my reset change a password card fees not never without 3 35 3.5 1,000 10:30 c++ .net -5 e-mail"
    " don't us it $5 50% 如何 修改 密码 不 邮箱 会员 订单 3.5元"
)
words = st.sampled_from(WORDS.split())
questions = st.lists(words, min_size=1, max_size=9).map(" ".join)
traditional = {chr(new): chr(old) for old, new in SIMPLIFIED.items()}


def typed(each: str, draw: random.Random) -> str:
    """Another way to type one character."""
    kind = draw.randrange(4)
    if kind == 0:
        return each.upper()
    if kind == 1 and each.isascii() and each.isalnum():
        return chr(ord(each) + 0xFEE0)
    if kind == 2:
        return traditional.get(each, each)
    return "  " if each == " " else each


def typed_otherwise(text: str, draw: random.Random) -> str:
    """Another way to type it: case, width, script, spaces, what stands around it."""
    changed = "".join(typed(each, draw) for each in text)
    before = draw.choice(["", " ", "Hi, ", "please ", "Could you please ", "您好，", "Hello! Please "])
    return before + changed + draw.choice(["", "?", "？", " .", "...", "。", ", please", "? Thanks!", "？谢谢"])


@given(questions, st.randoms(use_true_random=False))
def test_h3_how_a_question_is_typed_does_not_count(question: str, draw: random.Random) -> None:
    assert folded(typed_otherwise(question, draw)) == folded(question) != ""


@given(questions, questions)
def test_h3_no_word_number_or_sign_is_lost(one: str, other: str) -> None:
    assume(one.replace(" ", "") != other.replace(" ", ""))
    assert folded(one) != folded(other)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_h3_of_any_text_nothing_is_lost_but_marks_and_politeness(text: str) -> None:
    found = folded(text)
    if found and not re.search(r"pl|ki|th|ch|hi|he|go|co|ca|wo|wi|[谢多感您你大请麻劳]", found + text.lower()):
        plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower()).translate(SIMPLIFIED)
        assert re.findall(r"\w", found) == re.findall(r"\w", plain)


@given(st.text(max_size=60))
def test_bad_input_any_text_folds_or_stays(text: str) -> None:
    assert isinstance(folded(text), str)
