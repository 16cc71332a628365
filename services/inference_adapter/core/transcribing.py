"""What a channel holds, as readers of the worker get it."""

from __future__ import annotations

from collections.abc import Iterable

from services.inference_adapter.core.delivery import Kept
from streamway.journal.entries import Entry, decode_events


def transcribe(entries: Iterable[Entry]) -> list[Kept]:
    """The events of entries, with epoch, position and line. Raises protobuf's DecodeError."""
    kept: list[Kept] = []
    for entry in entries:
        for event in decode_events(entry):
            if entry.begin is not None:
                told = event.taken_over if event.HasField("taken_over") else event.started
                told.line = str(entry.begin.line)
            kept.append((event.position, event.SerializeToString()))
    return kept
