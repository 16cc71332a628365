"""What a generation is charged for: by estimate when it comes in, by what was used when it has ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from streamway.errors import QuotaExceeded, RequestTooLargeForQuota, StreamwayError
from streamway.quota.limits import Allowance, Budget, Demand, Kind, Verdict, allowance
from streamway.v1 import common_pb2

# `accepted` and `started`; every position above is a token, but for the end.
_POSITIONS_BEFORE_TOKENS = 2


class Ending(StrEnum):
    """How a reservation ended; a label of metrics."""

    SETTLED = "settled"  # what was used is known
    CLOSED = "closed"  # nothing was used
    ABANDONED = "abandoned"  # nobody knows; the charge stays


@dataclass(frozen=True, slots=True)
class Charge:
    """What goes back into the buckets; below zero: more is taken."""

    ending: Ending
    requests_back: int = 0
    tokens_back: int = 0


def close(reserved: int) -> Charge:
    """Nothing came of it: it counts as if it had not been asked."""
    return Charge(Ending.CLOSED, 1, reserved)


def answered(reserved: int) -> Charge:
    """The cache answered: a request, and no tokens."""
    return Charge(Ending.SETTLED, 0, reserved)


def abandon() -> Charge:
    """Its end was not seen."""
    return Charge(Ending.ABANDONED)


def settle(event: common_pb2.Event, reserved: int, prompt_tokens: int) -> Charge:
    """By the last event. Where the engine did not count: the prompt by its estimate, and the positions that were given out."""
    if event.HasField("finished") and event.finished.HasField("usage"):
        usage = event.finished.usage
        return Charge(Ending.SETTLED, 0, reserved - usage.prompt_tokens - usage.completion_tokens)
    if event.HasField("error") and event.position <= _POSITIONS_BEFORE_TOKENS:
        # It never reached an engine.
        return close(reserved)
    return Charge(Ending.SETTLED, 0, reserved - prompt_tokens - max(0, event.position - _POSITIONS_BEFORE_TOKENS - 1))


def unused(event: common_pb2.Event, reserved: int, prompt_tokens: int) -> Charge:
    """What was charged nowhere yet, since the store was away: all that was used is taken now."""
    charge = settle(event, reserved, prompt_tokens)
    if charge.ending is Ending.CLOSED:
        return Charge(Ending.CLOSED)
    return Charge(charge.ending, -1, charge.tokens_back - reserved)


def told(demand: Demand, verdict: Verdict) -> common_pb2.Allowance | None:
    """As `accepted` tells it; None: there are no limits a minute."""
    left = allowance(demand, verdict.levels)
    if left == Allowance():
        return None
    return common_pb2.Allowance(requests=_budget(left.requests), tokens=_budget(left.tokens))


def refusal(demand: Demand, verdict: Verdict, share: float) -> StreamwayError | None:
    """The error, or None where there is room."""
    refused = verdict.refusal
    if refused is None:
        return None
    quota = demand.model_quota if refused.of_model else demand.quota
    model = demand.model if refused.of_model else ""
    numbers = _numbers(allowance(demand, verdict.levels))
    limits = {
        Kind.CONCURRENCY: quota.concurrency,
        Kind.REQUESTS: quota.requests_per_minute,
        Kind.TOKENS: quota.tokens_per_minute,
    }
    limit = limits[refused.kind] or 0
    if refused.retry_s is None:
        return RequestTooLargeForQuota(demand.tenant, demand.tokens, int(share * limit), model, numbers)
    return QuotaExceeded(demand.tenant, refused.kind, limit, refused.retry_s, model, numbers)


def _numbers(left: Allowance) -> dict[str, str]:
    """The same numbers as an error carries them."""
    fields: dict[str, str] = {}
    for kind, budget in (("requests", left.requests), ("tokens", left.tokens)):
        if budget is not None:
            fields |= {f"limit_{kind}": str(budget.limit), f"remaining_{kind}": str(budget.remaining)}
            fields[f"reset_ms_{kind}"] = str(int(budget.reset_s * 1000))
    return fields


def _budget(budget: Budget | None) -> common_pb2.Budget | None:
    if budget is None:
        return None
    return common_pb2.Budget(limit=budget.limit, remaining=budget.remaining, reset_ms=int(budget.reset_s * 1000))
