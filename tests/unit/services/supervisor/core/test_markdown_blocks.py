"""What of a growing Markdown text is final."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.supervisor.core.markdown_blocks import split

LINES = st.sampled_from(
    [
        "",
        "text",
        "- item",
        "  more",
        "1. one",
        "> quoted",
        "```",
        "```python",
        "````",
        "~~~",
        "# head",
        "| a | b |",
        "\t",
        "---",
    ]
)


@pytest.mark.parametrize(
    ("text", "done"),
    [
        ("one\n\ntwo", ""),  # what begins there is not a whole line yet: it may become a list
        ("one\n\ntwo\n", "one\n\n"),
        ("one\ntwo\n", ""),
        ("- a\n\n- b\n\n", ""),  # a list goes on over empty lines
        ("- a\n\n- b\n\ntext\n", "- a\n\n- b\n\n"),
        ("1. a\n\n   more\n\ntext\n", "1. a\n\n   more\n\n"),
        ("```\na\n\nb\n", ""),  # code is open
        ("```\na\n\nb\n```\n\ntext\n", "```\na\n\nb\n```\n\n"),
        ("```\n~~~\n\nb\n", ""),  # another fence closes nothing
        ("````\n```\n\nb\n", ""),
    ],
)
def test_a_block_is_done_when_nothing_can_change_it(text: str, done: str) -> None:
    assert split(text) == (done, text[len(done) :])


@given(st.lists(LINES, max_size=12), st.text(max_size=20))
def test_nothing_is_lost_and_what_is_done_stays_done(lines: list[str], tail: str) -> None:
    text = "\n".join(lines) + tail
    done, rest = split(text)
    assert done + rest == text
    further, _ = split(text + "\nanything\n\nmore\n")
    assert further.startswith(done)


@given(st.lists(LINES, max_size=12), st.integers(1, 5))
def test_pieces_come_to_the_same_as_the_whole(lines: list[str], size: int) -> None:
    text = "\n".join(lines) + "\n"
    shown, rest = "", ""
    for start in range(0, len(text), size):
        done, rest = split(rest + text[start : start + size])
        shown += done
    assert shown + rest == text
    assert text.startswith(shown)
