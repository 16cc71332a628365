"""What the simulation writes into its page."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.simulate import tables
from benchmarks.simulate.page import put
from benchmarks.simulate.results import Outcome, summarize

PAGE = "before\n<!-- table: a -->\nold\n<!-- end of table -->\n<!-- table: b -->\n<!-- end of table -->\nafter\n"


def test_a_table_goes_to_its_place_and_nothing_else_changes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    put(page, "b", ["| one |", "|---|"])
    put(page, "a", [r"| \1 |"])
    assert page.read_text(encoding="utf-8") == PAGE.replace("old", r"| \1 |").replace(
        "<!-- table: b -->\n", "<!-- table: b -->\n| one |\n|---|\n"
    )


@pytest.mark.parametrize("text", ["", PAGE + PAGE])
def test_a_page_must_have_one_place_for_a_table(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="one place"):
        put(page, "a", [])


def test_an_arm_is_measured_by_the_one_that_begins_its_group() -> None:
    def arm(wait_s: float, tokens: int) -> list[Outcome]:
        return [
            Outcome(number, tier, 0.0, "w", "home", wait_s, made_tokens=tokens)
            for number, tier in enumerate(tables.TIERS)
        ]

    rows = [(name, summarize(arm(*made), ["w"])) for name, made in (("4: in order", (2.0, 90)), ("4: fair", (0.5, 99)))]
    assert tables.of_tiers(rows)[2:] == [
        "| 4: in order | 2,000 ms / 0 % / 33 % | 2,000 ms / 0 % / 33 % | 2,000 ms / 0 % / 33 % |  |  |",
        "| 4: fair | 500 ms / 0 % / 33 % | 500 ms / 0 % / 33 % | 500 ms / 0 % / 33 % | −75 % | +10 % |",
    ]
