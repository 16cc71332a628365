"""What a round of a chaos run came to: one row of its table."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from services.supervisor.core.account import Account
from services.supervisor.core.rounds import Round


@dataclass(frozen=True, slots=True)
class Witness:
    """One stream of a round. `live`: it ran when the deed was done. `hit`: the process done to had to do with it."""

    surface: str
    account: Account
    live: bool
    hit: bool
    # The mode that `accepted` had to tell; empty where any will do.
    expected_durability: str = ""

    def problem(self, *, may_end: bool) -> str:
        """What is wrong with it; empty where nothing is."""
        account = self.account
        if may_end and account.over and account.ended_with and account.honest:
            return ""
        if self.expected_durability and account.durability and account.durability != self.expected_durability:
            return f"durability {account.durability}, not {self.expected_durability}"
        return account.problem


@dataclass(frozen=True, slots=True)
class Row:
    """`next_token_median_s`, `next_token_most_s`: longest silence of each stream that was hit, from its last piece before the
    deed on; where it was done to queued streams or in prefill, from the deed to the first piece. Where none was hit, of all
    that ran. None: none ran.
    """

    deed: str
    victim: str
    target: str
    phase: str
    surface: str
    durability: str
    streams: int
    live: int
    hit: int
    lost: int
    repeated: int
    failed: int
    ended: int
    next_token_median_s: float | None
    next_token_most_s: float | None
    not_durable: int
    note: str = ""
    # How long the round took, until the mesh was whole again.
    took_s: float = 0.0

    @property
    def clean(self) -> bool:
        """Nothing was lost, repeated or failed."""
        return not (self.lost or self.repeated or self.failed)


def judge(round_: Round, target: str, witnesses: Sequence[Witness], done_at: float, note: str = "") -> Row:
    """The row of a round; `done_at` is the time of the deed on the clock of the accounts."""
    hit = [each for each in witnesses if each.hit]
    watched = hit or [each for each in witnesses if each.live]
    early = round_.phase in ("queued", "prefill")
    told = [each.account.longest_silence(done_at, before_first=early) for each in watched]
    silences = [silence for silence in told if silence is not None]
    problems = Counter(
        f"{each.surface}: {problem}" for each in witnesses if (problem := each.problem(may_end=round_.may_end))
    )
    ended = sum(bool(each.account.ended_with) for each in witnesses if not each.problem(may_end=round_.may_end))
    notes = [note] if note else []
    notes += [f"{number} × {problem}" for problem, number in problems.most_common(3)]
    if ended:
        reasons = sorted({each.account.ended_with for each in witnesses if each.account.ended_with})
        notes.append(f"{ended} ended: {', '.join(reasons)}")
    return Row(
        deed=round_.deed if not round_.seconds else f"{round_.deed} {round_.seconds:g} s",
        victim=round_.victim,
        target=target,
        phase=round_.phase,
        surface=round_.surface,
        durability=round_.durability,
        streams=len(witnesses),
        live=sum(each.live for each in witnesses),
        hit=len(hit),
        lost=sum(each.account.lost for each in witnesses),
        repeated=sum(each.account.repeated for each in witnesses),
        failed=sum(problems.values()),
        ended=ended,
        next_token_median_s=round(statistics.median(silences), 3) if silences else None,
        next_token_most_s=round(max(silences), 3) if silences else None,
        not_durable=sum(each.account.not_durable for each in witnesses),
        note="; ".join(notes),
    )
