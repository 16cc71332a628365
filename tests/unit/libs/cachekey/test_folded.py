"""What folds to the same question, and what must not."""

from __future__ import annotations

from typing import Any

import pytest

from streamway.cachekey import canonical_form, folded_key
from streamway.cachekey.folded import MOST_CHARS, folded
from streamway.v1 import common_pb2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How do I reset my password?", "how do i reset my PASSWORD"),
        ("Hi, could you please explain what a mutex is?", "Explain what a mutex is."),
        ("Ｈｏｗ does DNS work？", "How does DNS work"),
        ("What is a mutex, please?", "what is a mutex"),
        ("What is a mutex? Thank you very much!", "what is a mutex"),
        ("It’s broken; what now?", "it's broken what now"),
        ("Hello there! What is DNS", "what is dns"),
        ("如何重置密碼？", "如何重置密码"),
        ("你好，请问 如何 重置 密码？谢谢！", "如何重置密码"),
        ("麻烦您介绍一下量子计算。", "介绍一下量子计算"),
        ("iPhone 15怎么重启", "iphone 15 怎么重启？"),
        ("Cafe\u0301 hours", "caf\u00e9 hours"),
    ],
)
def test_h3_the_same_words_typed_otherwise_fold_to_one(one: str, other: str) -> None:
    assert folded(one) == folded(other) != ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What is .NET?", "What is net?"),
        ("什么是.NET？", "什么是NET？"),
        ("Convert 3.5 miles", "Convert 35 miles"),
        ("Is -5 even?", "Is 5 even?"),
        ("What is 1,000 in hex", "What is 1 000 in hex"),
        ("What is C++?", "What is C?"),
        ("Is it 10:30", "Is it 1030"),
        ("Were they late", "We're they late"),
        ("How tall was Groß", "How tall was Gross"),
        ("Can you swim", "Swim"),
        ("How do I please my boss", "How do I my boss"),
        ("Hello world in Java", "World in Java"),
        ("请假流程是什么", "假流程是什么"),
        ("Enable it", "Disable it"),
        ("我能不能退款", "我能退款"),
        ("5 % of 10", "5 of 10"),
        ("who won the re-run", "who won the rerun"),
    ],
)
def test_h3_what_means_another_thing_folds_to_another_text(one: str, other: str) -> None:
    assert folded(one) != folded(other)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "?!",
        "What does `ls` do",
        "What does f(x) = x mean",
        'Is "US" short',
        "Is 'US' short",
        "first\nsecond",
        "What is 5!",
        "What is n!",
        "What is 2³",
        "How much is ½",
        "Summarise: I am leaving, thank you",
        "Translate thank you into French",
        "How do I spell Please",
        "把谢谢翻译成英文",
        "what is foo()",
        "see https://a.b",
        "「你好」是什么意思",
        "a" * (MOST_CHARS + 1),
    ],
)
def test_h3_what_may_be_data_is_not_folded(text: str) -> None:
    assert folded(text) == ""


def key(*turns: tuple[str, str], tenant: str = "t", model: str = "m", **more: Any) -> bytes | None:
    messages = [common_pb2.Message(role=role, content=text) for role, text in turns]
    return folded_key(
        tenant, model, canonical_form(common_pb2.GenerationRequest(model=model, messages=messages, **more))
    )


def test_h1_everything_but_the_words_of_the_question_is_in_the_folded_key() -> None:
    base = key(("user", "What is DNS?"))
    assert base is not None
    assert base == key(("user", "what is dns"))
    others = [
        key(("user", "what is dns"), tenant="other"),
        key(("user", "what is dns"), model="other"),
        key(("user", "what is dns"), sampling=common_pb2.Sampling(temperature=0)),
        key(("system", "Be brief."), ("user", "what is dns")),
        key(("system", "be brief."), ("user", "what is dns")),
        key(("user", "what is udp")),
    ]
    assert None not in others
    assert len({base, *others}) == len(others) + 1


@pytest.mark.parametrize(
    "turns",
    [
        (),
        (("user", "Hi"), ("assistant", "Hello"), ("user", "What is DNS?")),
        (("user", "One"), ("user", "What is DNS?")),
        (("user", "What is DNS?"), ("assistant", "It")),
        (("system", "What is DNS?"),),
        (("user", "What is DNS?"), ("system", "Be brief.")),
    ],
)
def test_h1_only_a_single_turn_has_a_folded_key(turns: tuple[tuple[str, str], ...]) -> None:
    assert key(*turns) is None
