"""What is kept of a client's baggage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamway.config.baggage import kept

KEYS = ("team", "run.id")


@pytest.mark.parametrize(
    ("header", "left"),
    [
        ("", ""),
        ("team=blue", "team=blue"),
        (" team = blue ;secret=1 , other=2,\trun.id=7%20x", "team=blue,run.id=7%20x"),
        ("team=one,team=two", "team=one"),
        ("team", "team="),
        ("Team=blue", ""),
        ('team="blue"', ""),
        ("team=a b", ""),
        ("team=" + "x" * 257, ""),
        ("team=blue," + "x=1," * 3000, ""),
        ("team=blau\r\nX-Evil: 1", ""),
        ("team=ä", ""),
    ],
)
def test_known_keys_with_sound_values_are_kept_and_nothing_else(header: str, left: str) -> None:
    assert kept(header, KEYS) == left


def test_without_known_keys_nothing_is_kept() -> None:
    assert kept("team=blue", ()) == ""


@given(st.text(max_size=200))
def test_whatever_is_sent_what_is_kept_can_stand_in_a_header_and_is_kept_again(header: str) -> None:
    left = kept(header, KEYS)
    assert left.isascii()
    assert not set(left) & set('\r\n\t "')
    assert kept(left, KEYS) == left
