"""A table as a text: words between blanks."""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())
