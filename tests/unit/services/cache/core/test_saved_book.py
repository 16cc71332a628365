"""A tenant's ledger goes through bytes and back, and goes on where it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cache.core.books import TenantBook
from services.cache.core.records import Damaged
from services.cache.core.saved_book import adopt_book, pack_book, unpack_book
from services.cache.core.savings import Amount
from services.cache.core.semantic.switch import Switch, Terms
from services.cache.core.store import Counters

TERMS = Terms(window=5, grace=5, pause=3, most_pause=12)


def fresh() -> TenantBook:
    return TenantBook(Switch(TERMS))


def losing() -> TenantBook:
    """A level that has cost more than it saved and is off."""
    book = fresh()
    for _ in range(6):
        book.switch.ask()
        book.account.debit("embedding", Amount(0, 0.25, 1.0))
    assert book.switch.state == "off"
    book.account.credit("exact", Amount(100, 2.0, 0.5))
    return book


def told(book: TenantBook) -> tuple[object, ...]:
    names = ("exact", "embedding", "semantic")
    lines = [(book.account.amount(name), book.account.count(name)) for name in names]  # type: ignore[arg-type]
    return (book.switch.state, book.switch.left, book.switch.balance, book.account.balance, *lines)


def test_h6_a_ledger_goes_on_where_it_was_and_what_came_meanwhile_is_behind_it() -> None:
    before, counters = losing(), Counters(hits=3, misses=4)
    saved = unpack_book(pack_book(before, counters))
    after, own = fresh(), Counters()
    adopt_book(after, own, saved)
    assert told(after) == told(before)
    assert own == counters

    early, own = fresh(), Counters(hits=1)
    early.account.credit("exact", Amount(1, 0.5, 0.0))
    adopt_book(early, own, saved)
    assert early.account.amount("exact") == Amount(101, 2.5, 0.5)
    assert (early.account.count("exact"), own.hits, own.misses) == (2, 4, 4)
    # A second time it takes the place of what there is: another cache has gone on from here.
    adopt_book(early, own, saved)
    assert early.account.amount("exact") == Amount(100, 2.0, 0.5)
    assert own.hits == 3


def test_a_level_that_was_off_is_tried_again_after_what_was_left_of_its_pause() -> None:
    after = fresh()
    adopt_book(after, Counters(), unpack_book(pack_book(losing(), Counters())))
    left = after.switch.left
    assert left > 0
    assert [after.switch.ask() for _ in range(left)] == [False] * (left - 1) + [True]
    assert after.switch.state == "trial"


def test_h6_a_ledger_with_any_byte_changed_is_damaged() -> None:
    value = pack_book(losing(), Counters())
    for place in range(len(value)):
        with pytest.raises(Damaged):
            unpack_book(value[:place] + bytes([value[place] ^ 1]) + value[place + 1 :])


@given(st.binary(max_size=200))
def test_h6_nothing_but_damaged_is_raised_for_a_ledger(value: bytes) -> None:
    with pytest.raises(Damaged):
        unpack_book(value)
