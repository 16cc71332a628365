"""Notes about sessions while there is no store."""

from __future__ import annotations

import pytest

from services.router.core.decision import Wanted
from services.router.core.sessions import Stay
from services.router.io import session_notes
from services.router.io.session_notes import SessionNotes
from streamway.runtime.clock import SystemClock
from streamway.valkey.link import Link


def _notes() -> SessionNotes:
    clock = SystemClock()
    return SessionNotes(Link("redis://127.0.0.1:1", clock), clock, ttl_s=600, budget_s=0.005)


def _wanted(session: str) -> Wanted:
    return Wanted("m", session, 100, 10, "t")


async def test_without_a_store_nothing_is_recalled_and_nothing_waits() -> None:
    notes = _notes()
    assert await notes.recall(_wanted("s")) is None
    notes.note(_wanted("s"), None)
    notes.note(_wanted("s"), Stay("a", "b", 100, 0.0))


async def test_what_is_remembered_of_notes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_notes, "_MOST_NOTED", 3)
    notes = _notes()
    for number in range(10):
        notes.note(_wanted(f"s{number}"), Stay("a", "b", 100, 0.0))
    assert [name[2] for name in notes._noted] == ["s7", "s8", "s9"]
    notes.note(_wanted("s8"), Stay("a", "a", 100, 0.0))
    assert [name[2] for name in notes._noted] == ["s7", "s9"], "it is home"
