"""The lines that events carry."""

from __future__ import annotations

from streamway.journal import Line
from streamway.v1 import common_pb2


def line_of(event: common_pb2.Event, kind: str) -> Line | None:
    """The line that a `started` or `taken_over` says; None where it says none, and for every other event.

    Without a response channel a generation has one engine call, right behind what came before any.
    """
    if kind == "started":
        text = event.started.line
        if not text and event.epoch and event.position > 1:
            return Line(((0, 1), (event.epoch, event.position)))
    elif kind == "taken_over":
        text = event.taken_over.line
    else:
        return None
    try:
        return Line.parse(text)
    except ValueError:
        return None
