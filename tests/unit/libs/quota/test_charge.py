"""What a generation is charged for."""

from __future__ import annotations

from streamway.errors import QuotaExceeded, RequestTooLargeForQuota
from streamway.quota import Demand, Kind, Level, Refusal, Verdict, charge
from streamway.quota.charge import Charge, Ending
from streamway.tenancy import Quota
from streamway.v1 import common_pb2


def finished(prompt: int, completion: int) -> common_pb2.Event:
    usage = common_pb2.Usage(prompt_tokens=prompt, completion_tokens=completion)
    return common_pb2.Event(position=40, finished=common_pb2.Finished(usage=usage))


def error(position: int) -> common_pb2.Event:
    return common_pb2.Event(position=position, error=common_pb2.Error())


def test_what_the_engine_counted_is_settled() -> None:
    assert charge.settle(finished(30, 50), reserved=100, prompt_tokens=10) == Charge(Ending.SETTLED, 0, 20)
    assert charge.settle(finished(30, 500), reserved=100, prompt_tokens=10).tokens_back == -430


def test_an_end_before_the_engine_costs_nothing() -> None:
    assert charge.settle(error(2), reserved=100, prompt_tokens=10) == Charge(Ending.CLOSED, 1, 100)


def test_without_a_count_the_prompts_estimate_and_the_positions_are_settled() -> None:
    assert charge.settle(error(3), reserved=100, prompt_tokens=10).tokens_back == 90
    assert charge.settle(error(13), reserved=100, prompt_tokens=10).tokens_back == 80
    uncounted = common_pb2.Event(position=23, finished=common_pb2.Finished())
    assert charge.settle(uncounted, reserved=100, prompt_tokens=10).tokens_back == 70


def test_a_hit_costs_a_request_and_a_lost_one_its_estimate() -> None:
    assert charge.answered(100) == Charge(Ending.SETTLED, 0, 100)
    assert charge.abandon() == Charge(Ending.ABANDONED, 0, 0)


def test_what_the_store_has_not_counted_is_taken_at_the_end() -> None:
    assert charge.unused(finished(30, 50), reserved=100, prompt_tokens=10) == Charge(Ending.SETTLED, -1, -80)
    assert charge.unused(error(2), reserved=100, prompt_tokens=10) == Charge(Ending.CLOSED)


DEMAND = Demand("g", "acme", "m", 200, Quota(5, 60, 1000), Quota(tokens_per_minute=500))


def test_a_refusal_tells_what_ran_out_and_what_is_left() -> None:
    levels = (Level(30, 900), Level(None, 100))
    refused = charge.refusal(DEMAND, Verdict(Refusal(Kind.TOKENS, of_model=True, retry_s=14.6), levels), 0.9)
    assert isinstance(refused, QuotaExceeded)
    assert refused.retry_after_s == 14.6
    assert refused.metadata == {
        "tenant": "acme",
        "kind": "tokens_per_minute",
        "limit": "500",
        "model": "m",
        "limit_requests": "60",
        "remaining_requests": "30",
        "reset_ms_requests": "30000",
        "limit_tokens": "500",
        "remaining_tokens": "100",
        "reset_ms_tokens": "48000",
    }
    too_large = charge.refusal(DEMAND, Verdict(Refusal(Kind.TOKENS, of_model=False, retry_s=None), levels), 0.9)
    assert isinstance(too_large, RequestTooLargeForQuota)
    assert too_large.metadata["limit"] == "900"
    assert charge.refusal(DEMAND, Verdict(None, levels), 0.9) is None


def test_accepted_tells_the_same_numbers() -> None:
    told = charge.told(DEMAND, Verdict(None, (Level(30, 900), Level(None, 100))))
    assert told is not None
    assert (told.requests.remaining, told.tokens.limit, told.tokens.remaining) == (30, 500, 100)
    assert charge.told(Demand("g", "acme", "m", 1, Quota(concurrency=5)), Verdict(None, (Level(), Level()))) is None
