"""Which questions are compared whatever was said before them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cache.core.semantic.self_contained import is_self_contained, repeats_before
from streamway.cachekey import context_key, without_turns


@pytest.mark.parametrize(
    "question",
    [
        "What is the cooling-off period for a new broadband contract?",
        "Which documents does the library need for a new reader card?",
        "怎么把打印机连接到办公室的网络？",
    ],
)
def test_a_question_that_says_all_it_asks_about(question: str) -> None:
    assert is_self_contained(question)


@pytest.mark.parametrize(
    "question",
    [
        "how much is the visitor one?",  # one
        "Can the printer in the hall do that on both sides of a sheet?",  # that
        "and how do I connect the printer to the office network?",  # goes on from something
        "Please open a ticket for the printer. Which office floor has another printer?",  # two sentences
        "yes please",
        "how long will the refund take?",  # of what
        "它为什么不能连接到办公室的网络打印机？",
        "那怎么把打印机连接到办公室的网络呢？",
        "",
    ],
)
def test_a_question_that_may_need_what_was_said_before(question: str) -> None:
    assert not is_self_contained(question)


@given(st.text(max_size=60), st.sampled_from(["it", "this", "that one", "them", "the other"]), st.text(max_size=60))
def test_nothing_that_points_elsewhere_is_and_no_text_breaks_it(before: str, pointing: str, after: str) -> None:
    assert is_self_contained(before) in (True, False)
    assert not is_self_contained(f"{before} {pointing} {after}")


def _form(*turns: tuple[str, str]) -> dict[str, object]:
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


@pytest.mark.parametrize(
    ("answer", "belongs"),
    [
        ("Press the green button for two seconds.", False),
        ("Since your contract NB-42X ends soon, press the green button.", True),
        ("It costs 45 pounds.", True),
        ("As Ellie asked, press the green button.", True),
        ("It takes 7 minutes.", False),
        ("Fibre is faster.", False),  # begins a sentence: no name by its letters
    ],
)
def test_an_answer_that_repeats_what_was_said_before_belongs_to_that(answer: str, belongs: bool) -> None:
    before = [("user", "I am with Ellie, contract NB-42X, Fibre for 45 pounds"), ("assistant", "Thanks, go on.")]
    form = _form(("system", "Be brief."), *before, ("user", "How does the router with 7 lamps restart by hand?"))
    assert repeats_before(answer, form) is belongs


def test_answers_behind_more_than_is_looked_at_belong_to_it() -> None:
    assert repeats_before("So.", _form(("user", "words " * 2_000), ("user", "How does the router restart?")))


def test_turns_are_left_out_of_the_context_and_what_the_system_says_is_not() -> None:
    asked = ("user", "How does the router restart by hand?")
    plain, told = (
        _form(("system", "Be brief."), asked),
        _form(("system", "Be brief."), ("user", "Hi"), ("assistant", "Hi."), asked),
    )
    assert context_key("t", "m", plain) == context_key("t", "m", without_turns(told)) != context_key("t", "m", told)
    other = _form(("system", "Be kind."), ("user", "Hi"), ("assistant", "Hi."), asked)
    assert context_key("t", "m", without_turns(other)) != context_key("t", "m", plain)
    tools = _form(("user", "Hi"), ("tool", "{}"), asked)
    assert without_turns(tools) is tools
