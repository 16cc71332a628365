"""What came out, whichever way it was run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Outcome:
    """One turn. Times are seconds since the start; `first_at` < 0: no token came, `ended_at` < 0: it has not ended.

    `refused`: the reason, if it was; `http`: the status that goes with it, and `retry_after_s` when to come back. `begun_at` is
    when the engine was asked, known of simulated turns; `token_times` when the engine made each token, or live, when it came.
    """

    session: int
    tier: str
    asked_at: float
    worker: str = ""
    branch: str = ""
    first_at: float = -1.0
    ended_at: float = -1.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    made_tokens: int = 0
    refused: str = ""
    http: int = 0
    retry_after_s: float | None = None
    begun_at: float = -1.0
    token_times: list[float] = field(default_factory=list)

    @property
    def wait_s(self) -> float:
        """Until the first token."""
        return self.first_at - self.asked_at


@dataclass(slots=True)
class Summary:
    """The figures of one run."""

    turns: int
    refused: float
    made_tokens: int
    home: float
    same_worker: float
    kv_hits: float
    ttft_ms: dict[str, float]
    moved_sessions: int
    jain: float
    tiers: dict[str, dict[str, float]] = field(default_factory=dict)


def quantile(values: Iterable[float], share: float) -> float:
    """The value below which that share lies; 0 without any."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def jain(values: Sequence[float]) -> float:
    """Jain's fairness index (Jain, Chiu, Hawe 1984): (Σx)² / (n Σx²); 1: all equal, 1/n: one has all."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def summarize(outcomes: Sequence[Outcome], workers: Iterable[str]) -> Summary:
    """Jain's index is over the tokens that each worker had to compute or make."""
    served = [one for one in outcomes if one.first_at >= 0]
    last: dict[int, str] = {}
    again = same = 0
    movers = set()
    work: dict[str, float] = dict.fromkeys(workers, 0.0)
    for one in served:
        work[one.worker] = work.get(one.worker, 0.0) + one.prompt_tokens - one.cached_tokens + one.made_tokens
        before = last.get(one.session)
        if before is not None:
            again += 1
            same += before == one.worker
            if before != one.worker:
                movers.add(one.session)
        last[one.session] = one.worker
    waits = [one.wait_s * 1000 for one in served]
    return Summary(
        turns=len(outcomes),
        refused=sum(bool(one.refused) for one in outcomes) / max(1, len(outcomes)),
        made_tokens=sum(one.made_tokens for one in outcomes),
        home=sum(one.branch == "home" for one in served) / max(1, len(served)),
        same_worker=same / max(1, again),
        kv_hits=sum(one.cached_tokens for one in served) / max(1, sum(one.prompt_tokens for one in served)),
        ttft_ms={"p50": quantile(waits, 0.5), "p95": quantile(waits, 0.95), "p99": quantile(waits, 0.99)},
        moved_sessions=len(movers),
        jain=jain(list(work.values())),
        tiers=_tiers(outcomes),
    )


def _tiers(outcomes: Sequence[Outcome]) -> dict[str, dict[str, float]]:
    """Of each tier: its wait at p50 and p95 in ms, its refusals and its part of the tokens, as shares."""
    by_tier: dict[str, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        by_tier[one.tier].append(one)
    made = max(1, sum(one.made_tokens for one in outcomes))
    found = {}
    for tier, ones in by_tier.items():
        waits = [one.wait_s * 1000 for one in ones if one.first_at >= 0]
        found[tier] = {
            "p50": quantile(waits, 0.5),
            "p95": quantile(waits, 0.95),
            "refused": sum(bool(one.refused) for one in ones) / len(ones),
            "tokens": sum(one.made_tokens for one in ones) / made,
            "requests": len(ones) / len(outcomes),
        }
    return found
