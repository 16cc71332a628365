"""Dictionaries of what a tenant's conversations have in common."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from services.router.core import context_codec as codec
from services.router.core.context_dictionary import COMMON, is_better, trained

_LINES = [
    f"Step {number}: press the {colour} key and wait until the lamp is {colour} again.\n"
    for number, colour in enumerate(
        ("red", "green", "blue", "white", "black", "yellow", "orange", "violet", "brown", "grey")
    )
]


def _talk(seed: int, own: str = "") -> bytes:
    draw = random.Random(seed)
    said = [*draw.choices(_LINES, k=20), own, *(f"{draw.getrandbits(64):x}\n" for _ in range(10))]
    draw.shuffle(said)
    return "".join(said).encode()


def test_what_conversations_have_in_common_packs_the_next_one() -> None:
    made = trained([_talk(seed) for seed in range(20)], 4_096)
    unseen = [_talk(seed) for seed in range(100, 110)]
    assert is_better(made, b"", unseen)
    assert not is_better(made, made, unseen)
    assert not is_better(b"", b"", unseen)


def test_nothing_in_common_makes_no_dictionary() -> None:
    draw = random.Random(1)
    assert trained([draw.randbytes(2_000) for _ in range(20)], 4_096) == b""
    assert trained([], 4_096) == b""
    assert trained([_talk(1)] * (COMMON - 1), 4_096) == b""


@settings(max_examples=8, deadline=None)
@given(
    st.lists(st.text("QWXZJKVY", min_size=12, max_size=40), min_size=COMMON - 1, max_size=COMMON - 1),
    st.integers(8, 5_000),
)
def test_words_that_fewer_conversations_have_are_in_none(secrets: list[str], size: int) -> None:
    """What a deleted conversation alone said is gone with it."""
    shared = "QWXZJKVY" * 3  # all of these have it, and so has nobody else
    texts = [_talk(seed, f"{secret} {shared}\n") for seed, secret in enumerate(secrets)]
    made = trained([*texts, *(_talk(seed) for seed in range(50, 60))], size)
    assert len(made) <= size
    assert not any(made.find(f"{secret} {shared}"[at : at + 8].encode()) >= 0 for secret in secrets for at in range(20))


@given(
    st.lists(st.binary(max_size=3_000) | st.integers(1, 900).map(lambda n: b"Step 1: press " * n), max_size=6),
    st.binary(max_size=70_000),
)
def test_every_row_packed_with_dictionaries_comes_back(texts: list[bytes], dictionary: bytes) -> None:
    segments, before = [], b""
    for at, text in enumerate(texts):
        # A newer one takes nothing from what an older one has packed.
        with_ = (dictionary, b"Step 1: press the red key " * 40)[at % 2]
        segments.append(codec.pack(text, before, opening=not at, dictionary=with_))
        before += text
    known = {codec.name_of(each): each for each in (dictionary, b"Step 1: press the red key " * 40)}
    assert codec.dictionaries_of(segments) <= known.keys()
    assert codec.unpack(codec.split(b"".join(segments)), len(before), known) == texts


def test_without_its_dictionary_a_context_is_damaged() -> None:
    made = b"".join(map(str.encode, _LINES))
    segment = codec.pack(_talk(3), dictionary=made)
    assert codec.dictionaries_of([segment]) == {codec.name_of(made)}
    for known in ({}, {codec.name_of(made): made[1:] + b"x"}):
        try:
            codec.unpack([segment], 10_000, known)
        except codec.Damaged:
            continue
        raise AssertionError("it was read without")


def test_behind_64_kb_of_text_no_dictionary_is_named() -> None:
    made = b"".join(map(str.encode, _LINES))
    assert not codec.dictionaries_of([codec.pack(_talk(3), b"x" * 65_536, dictionary=made)])
