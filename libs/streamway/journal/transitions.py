"""The states of the channel machine, and which of its methods takes which event in each. What is not here is a bug."""

from __future__ import annotations

from enum import Enum
from typing import Final

from streamway.journal import signals as s
from streamway.journal.entries import Entry


class State(Enum):
    """Where the machine is; see the picture in `channel.py`."""

    STEADY = "steady"
    BROKEN = "broken"
    TAIL = "tail"
    COPY = "copy"
    ADDING = "adding"
    COMPARING = "comparing"
    RESTORING = "restoring"
    ACKNOWLEDGING = "acknowledging"
    DONE = "done"
    STOPPED = "stopped"


# Replies to appends that were under way when doubt began come before the answer to ReadTail, which covers them.
_LATE: Final[dict[type, str]] = {s.Appended: "_ignore", s.Refused: "_ignore", s.AppendFailed: "_ignore"}
_ALWAYS: Final[dict[type, str]] = {s.Tick: "_tick", s.Connected: "_ignore"}
_OPEN: Final[dict[type, str]] = {**_ALWAYS, s.Lost: "_lost", s.CopySeen: "_copy_seen"}
_STEP: Final[dict[type, str]] = {**_OPEN, Entry: "_queue", s.StepFailed: "_failed"}
_ENDED: Final[dict[type, str]] = dict.fromkeys(
    (s.Tick, s.Connected, s.Lost, s.Appended, s.Refused, s.AppendFailed, s.StepFailed, s.Acknowledged), "_ignore"
)
TRANSITIONS: Final[dict[State, dict[type, str]]] = {
    State.STEADY: {
        **_OPEN,
        s.Tick: "_steady_tick",
        Entry: "_write",
        s.Appended: "_appended",
        s.Refused: "_verify",
        s.AppendFailed: "_failed",
    },
    State.BROKEN: {**_OPEN, **_LATE, Entry: "_queue", s.Connected: "_verify"},
    State.TAIL: {**_STEP, **_LATE, s.TailRead: "_tail_read"},
    State.COPY: {**_STEP, s.CopyRead: "_copy_read"},
    State.ADDING: {**_STEP, s.CopyAdded: "_copy_added"},
    State.COMPARING: {**_STEP, s.ChannelRead: "_channel_read"},
    State.RESTORING: {**_STEP, s.Restored: "_restored"},
    State.ACKNOWLEDGING: {
        **_ALWAYS,
        s.Lost: "_lost",
        s.StepFailed: "_failed",
        s.Acknowledged: "_acknowledged",
    },
    State.DONE: _ENDED,
    # A stopped engine may have one flush under way.
    State.STOPPED: {**_ENDED, Entry: "_ignore"},
}
