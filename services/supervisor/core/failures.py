"""What the console may do to a worker of this mesh, and whether it may at all."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from streamway.runtime.address import is_loopback

# A worker that is paused goes on by itself after this long: whoever did it may have left.
PAUSE_S: Final = 15.0


class Deed(StrEnum):
    """To a process."""

    KILL = "kill"
    PAUSE = "pause"
    GO_ON = "go_on"


class State(StrEnum):
    """Of a process, as the supervisor knows it."""

    RUNNING = "running"
    PAUSED = "paused"
    DOWN = "down"


class TryFailure(StrEnum):
    """Whether workers may be killed and paused from the console."""

    AUTO = "auto"  # as long as only this machine can ask, and nobody has credentials
    ON = "on"
    OFF = "off"


def allowed(setting: TryFailure, host: str, *, has_credentials: bool) -> bool:
    """Whether the control socket is there."""
    if setting is TryFailure.AUTO:
        return is_loopback(host) and not has_credentials
    return setting is TryFailure.ON


def follows(state: State, deed: Deed) -> bool:
    """Whether a deed means anything to a process in this state."""
    if deed is Deed.KILL:
        return state is not State.DOWN
    return state is (State.RUNNING if deed is Deed.PAUSE else State.PAUSED)
