"""Entries by folded key."""

from __future__ import annotations

from services.cache.core.folds import Folds


def test_of_two_entries_with_one_key_the_later_is_found_until_it_goes() -> None:
    folds = Folds()
    folds.add(b"k", "old")
    folds.add(b"k", "new")
    folds.remove("old")
    assert folds.find(b"k") == "new"
    folds.remove("new")
    assert (folds.find(b"k"), len(folds)) == (None, 0)


def test_an_unknown_entry_is_forgotten_without_effect() -> None:
    folds = Folds()
    folds.add(b"k", "e")
    folds.remove("other")
    assert (folds.find(b"k"), folds.find(b"other")) == ("e", None)
