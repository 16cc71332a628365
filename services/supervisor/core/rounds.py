"""What a chaos run does: rounds, each of them one deed to one process while streams run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from services.supervisor.core.account import Account

Deed = Literal["nothing", "kill", "pause", "cut", "stop", "empty"]
Victim = Literal["edge", "router", "adapter", "cache", "valkey"]
Phase = Literal["queued", "prefill", "decode", "last token"]
Surface = Literal["websocket", "sse", "grpc"]

VICTIMS: Final[tuple[Victim, ...]] = ("edge", "router", "adapter", "cache", "valkey")
SURFACES: Final[tuple[Surface, ...]] = ("websocket", "sse", "grpc")
PHASES: Final[tuple[Phase, ...]] = ("queued", "prefill", "decode", "last token")
# So long must a task have waited to count as queued.
_QUEUED_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Round:
    """One deed.

    `kill` is SIGKILL; `pause` SIGSTOP and, after `seconds`, SIGCONT; `cut` ends all connections of the process; `stop` keeps
    the store away for `seconds`; `empty` does the same and takes its data. It happens when the first of `streams` is in
    `phase`, to the process that has to do with that stream.
    """

    deed: Deed
    victim: Victim
    phase: Phase = "decode"
    surfaces: tuple[Surface, ...] = SURFACES
    streams: int = 9
    tokens: int = 60
    seconds: float = 0.0
    durability: Literal["relaxed", "strict"] = "relaxed"
    # An honest end, with what was told being the beginning of the answer, is no failure: there is nothing to go on from.
    may_end: bool = False

    @property
    def surface(self) -> str:
        """For the table."""
        return self.surfaces[0] if len(self.surfaces) == 1 else "all"

    @property
    def newcomers(self) -> bool:
        """Whether new work is asked for while the store is away, and again afterwards."""
        return self.victim == "valkey" and self.seconds > 1

    def reached(self, account: Account, now: float) -> bool:
        """Whether the moment has come, as far as this stream goes."""
        if account.over:
            return False
        match self.phase:
            case "queued":
                waited = account.accepted_at is not None and now - account.accepted_at >= _QUEUED_S
                return waited and not account.started and bool(account.worker)
            case "prefill":
                return account.started and not account.units
            case "decode":
                return account.units >= 20
            case "last token":
                return account.units >= self.tokens - 1


# What every run begins with: streams while nothing is done, so that a fault is not blamed on a deed.
UNDISTURBED: Final = Round("nothing", "edge", streams=6)

# A stream has 60 tokens a second in a mesh of our own: these run on for a while after the deed.
_BRIEF: Final = 90
_MEDIUM: Final = 150
_LONG: Final = 360

OUTAGES: Final[tuple[Round, ...]] = (
    Round("stop", "valkey", streams=6, tokens=_LONG, seconds=3),
    Round("stop", "valkey", streams=6, tokens=_LONG, seconds=3, durability="strict"),
    Round("empty", "valkey", streams=6, tokens=_LONG, seconds=3),
    Round("empty", "valkey", streams=6, tokens=_LONG, seconds=3, durability="strict", may_end=True),
)
# Each kind of process: killed, paused, cut off. A worker is paused for longer than it takes to be found out.
STANDARD: Final[tuple[Round, ...]] = (
    *(Round("kill", victim, tokens=_MEDIUM) for victim in VICTIMS),
    Round("pause", "edge", tokens=_MEDIUM, seconds=3),
    Round("pause", "router", tokens=_MEDIUM, seconds=3),
    Round("pause", "adapter", tokens=_LONG, seconds=12),
    Round("pause", "cache", tokens=_MEDIUM, seconds=2),
    Round("pause", "valkey", streams=6, tokens=_LONG, seconds=3),
    *(Round("cut", victim, tokens=_MEDIUM) for victim in VICTIMS),
    *OUTAGES,
)
SHORT: Final[tuple[Round, ...]] = (
    *(Round("kill", victim, tokens=_BRIEF) for victim in VICTIMS),
    Round("cut", "edge", tokens=_BRIEF),
    Round("cut", "adapter", tokens=_BRIEF),
)
# Who dies × when × on which surface. Victims alternate, so that each has time to come back. A phase that needs a queue needs
# more streams than the mesh of our own has slots.
MATRIX: Final[tuple[Round, ...]] = tuple(
    Round("kill", victim, phase, (surface,), streams=18 if phase == "queued" else 4)
    for phase in PHASES
    for surface in SURFACES
    for victim in VICTIMS[:3]
)
FULL: Final[tuple[Round, ...]] = (*MATRIX, *STANDARD)


def chosen(rounds: Iterable[Round], victims: Iterable[Victim]) -> tuple[Round, ...]:
    """The rounds of some victims; all where none is named."""
    wanted = set(victims)
    return tuple(each for each in rounds if not wanted or each.victim in wanted)
