"""A tenant's ledger, what was looked up, and whether its semantic level pays, as bytes that outlive the process.

It is a few hundred bytes, and four for each question of the window in which the semantic level has to pay.
"""

from __future__ import annotations

from array import array
from dataclasses import astuple
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from services.cache.core.books import TenantBook
from services.cache.core.records import Damaged, sealed, unsealed
from services.cache.core.savings import CREDITS, DEBITS, Amount, Credit, Debit
from services.cache.core.semantic.switch import State
from services.cache.core.store import Counters

_NAMES: Final[tuple[Credit | Debit, ...]] = (*CREDITS, *DEBITS)
_Count = Annotated[int, Meta(ge=0)]


class SavedBook(msgspec.Struct, frozen=True, array_like=True):
    """`lines` are tokens, money, seconds and postings by name; `questions` the money of the window's, float32."""

    lines: dict[str, tuple[int, float, float, _Count]]
    counters: tuple[_Count, _Count, _Count, _Count, _Count, _Count, _Count]
    state: State
    asked: _Count
    pause: _Count
    left: _Count
    questions: bytes


_pack = msgspec.msgpack.Encoder().encode
_saved = msgspec.msgpack.Decoder(SavedBook)


def pack_book(book: TenantBook, counters: Counters) -> bytes:
    """For `unpack_book`."""
    lines: dict[str, tuple[int, float, float, int]] = {}
    for name in _NAMES:
        amount = book.account.amount(name)
        if count := book.account.count(name):
            lines[name] = (amount.tokens, amount.money, amount.seconds, count)
    state, asked, pause, left, questions = book.switch.kept()
    return sealed(
        _pack(SavedBook(lines, astuple(counters), state, asked, pause, left, array("f", questions).tobytes()))
    )


def unpack_book(value: bytes) -> SavedBook:
    """Raises Damaged."""
    try:
        saved = _saved.decode(unsealed(value))
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise Damaged(str(problem)) from problem
    if len(saved.questions) % 4 or not saved.lines.keys() <= set(_NAMES):
        raise Damaged("a book with other lines")
    return saved


def adopt_book(book: TenantBook, counters: Counters, saved: SavedBook) -> None:
    """Puts what was saved in the place of what there is; the first time in front of it, since that came after the start."""
    lines: dict[str, tuple[Amount, int]] = {}
    for name in _NAMES:
        tokens, money, seconds, count = saved.lines.get(name, (0, 0.0, 0.0, 0))
        own, own_count = (Amount(), 0) if book.adopted else (book.account.amount(name), book.account.count(name))
        lines[name] = (Amount(tokens, money, seconds) + own, count + own_count)
    for counted, before in zip(Counters.__slots__, saved.counters, strict=True):
        setattr(counters, counted, before + (0 if book.adopted else getattr(counters, counted)))
    questions = array("f", saved.questions)
    book.switch.take(saved.state, saved.asked, saved.pause, saved.left, questions, also_own=not book.adopted)
    book.account.restore(lines)
    book.adopted = True
