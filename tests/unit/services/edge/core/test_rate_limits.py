"""OpenAI's rate limit headers."""

from __future__ import annotations

import pytest

from services.edge.core import rate_limits
from streamway.v1 import common_pb2


@pytest.mark.parametrize(
    ("reset_ms", "text"), [(0, "0ms"), (120, "120ms"), (1000, "1s"), (1001, "2s"), (60_000, "1m0s"), (361_000, "6m1s")]
)
def test_a_reset_is_written_as_openai_writes_it(reset_ms: int, text: str) -> None:
    budget = common_pb2.Budget(limit=1000, remaining=0, reset_ms=reset_ms)
    accepted = common_pb2.Accepted(allowance=common_pb2.Allowance(tokens=budget))
    assert rate_limits.of_accepted(accepted) == {
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": text,
    }


def test_without_limits_there_are_no_headers() -> None:
    assert rate_limits.of_accepted(common_pb2.Accepted()) == {}
    assert rate_limits.of_refusal({"tenant": "acme"}) == {}


def test_a_refusal_tells_the_same() -> None:
    told = {"limit_requests": "60", "remaining_requests": "0", "reset_ms_requests": "60000", "limit_tokens": "x"}
    assert rate_limits.of_refusal(told) == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "1m0s",
    }
