"""Questions that are not compared."""

from __future__ import annotations

import pytest

from services.cache.core.semantic.unsuited import MOST_CHARS, unsuited


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("x" * (MOST_CHARS + 1), "too_long"),
        ("What is the weather in Oslo?", "volatile"),
        ("Who leads the league now?", "volatile"),
        ("今天有什么新闻？", "volatile"),
        ("Where is my order?", "personal"),
        ("我的订单到哪了？", "personal"),
        ("How do I reset my password?", ""),
        ("如何重置密码？", ""),
        ("Do I know how to knit?", ""),
        ("What is the capital of France?", ""),
    ],
)
def test_what_changes_by_the_hour_or_with_who_asks_is_not_compared(question: str, why: str) -> None:
    assert unsuited(question) == why
