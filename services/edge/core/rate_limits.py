"""What a tenant has left, as OpenAI's headers say it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamway.v1 import common_pb2

_KINDS: Final = ("requests", "tokens")


def of_accepted(accepted: common_pb2.Accepted) -> dict[str, str]:
    """`x-ratelimit-…` after a request that was taken; empty where the tenant has no limits."""
    headers: dict[str, str] = {}
    for kind in _KINDS:
        if accepted.allowance.HasField(kind):
            budget: common_pb2.Budget = getattr(accepted.allowance, kind)
            headers |= _headers(kind, str(budget.limit), str(budget.remaining), budget.reset_ms)
    return headers


def of_event(accepted: common_pb2.Accepted) -> dict[str, dict[str, int]] | None:
    """As JSON frames carry it, milliseconds for durations; None where the tenant has no limits."""
    budgets = {kind: getattr(accepted.allowance, kind) for kind in _KINDS if accepted.allowance.HasField(kind)}
    told = {kind: {"limit": b.limit, "remaining": b.remaining, "reset_ms": b.reset_ms} for kind, b in budgets.items()}
    return told or None


def of_refusal(metadata: Mapping[str, str]) -> dict[str, str]:
    """The same from the fields of an error; empty when it tells none."""
    headers: dict[str, str] = {}
    for kind in _KINDS:
        limit, remaining, reset = (metadata.get(f"{name}_{kind}", "") for name in ("limit", "remaining", "reset_ms"))
        if limit.isdecimal() and remaining.isdecimal() and reset.isdecimal():
            headers |= _headers(kind, limit, remaining, int(reset))
    return headers


def _headers(kind: str, limit: str, remaining: str, reset_ms: int) -> dict[str, str]:
    return {
        f"x-ratelimit-limit-{kind}": limit,
        f"x-ratelimit-remaining-{kind}": remaining,
        f"x-ratelimit-reset-{kind}": _duration(reset_ms),
    }


def _duration(ms: int) -> str:
    """As OpenAI writes one: 120ms, 1s, 6m0s."""
    if ms < 1000:
        return f"{ms}ms"
    seconds = -(-ms // 1000)
    return f"{seconds // 60}m{seconds % 60}s" if seconds >= 60 else f"{seconds}s"
