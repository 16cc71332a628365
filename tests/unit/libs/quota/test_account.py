"""The arithmetic of a quota: what is taken comes back exactly once, and never more runs than may."""

from __future__ import annotations

import pytest

from streamway.quota import Account, Demand, Kind, Level, allowance
from streamway.tenancy import UNLIMITED, Quota

LEASE_MS = 15_000.0


def demand(id_: str, tokens: int = 100, quota: Quota = UNLIMITED, model: Quota = UNLIMITED) -> Demand:
    return Demand(id_, "acme", "m", tokens, quota, model)


def account(share: float = 1.0) -> Account:
    return Account(LEASE_MS, share)


def test_refused_demands_charge_nothing() -> None:
    made, quota = account(), Quota(concurrency=1, requests_per_minute=10, tokens_per_minute=1000)
    assert made.reserve(demand("a", 100, quota), 0).refusal is None
    refused = made.reserve(demand("b", 100, quota), 0)
    assert refused.refusal is not None
    assert refused.refusal.kind is Kind.CONCURRENCY
    assert refused.levels[0] == Level(9, 900)


def test_tokens_that_were_not_used_come_back_and_more_than_reserved_is_debt() -> None:
    made, quota = account(), Quota(tokens_per_minute=1000)
    made.reserve(demand("a", 400, quota), 0)
    assert made.settle(demand("a", 400, quota), 0, 300, 0)
    assert made.reserve(demand("b", 900, quota), 0).levels[0].tokens == 0
    assert made.settle(demand("b", 900, quota), 0, -600, 0)
    refused = made.reserve(demand("c", 1, quota), 0)
    assert refused.levels[0].tokens == -600
    assert refused.refusal is not None
    assert refused.refusal.retry_s == pytest.approx(601 / 1000 * 60)
    assert made.reserve(demand("c", 1, quota), 601 / 1000 * 60_000 + 1).refusal is None


def test_a_reservation_ends_once() -> None:
    made, quota = account(), Quota(requests_per_minute=10, tokens_per_minute=1000)
    made.reserve(demand("a", 400, quota), 0)
    assert made.settle(demand("a", 400, quota), 1, 400, 0)
    assert not made.settle(demand("a", 400, quota), 1, 400, 0)
    assert made.reserve(demand("b", 0, quota), 0).levels[0] == Level(9, 1000)


def test_the_same_reservation_again_charges_nothing_more() -> None:
    made, quota = account(), Quota(concurrency=1, requests_per_minute=10)
    made.reserve(demand("a", 1, quota), 0)
    again = made.reserve(demand("a", 1, quota), 0)
    assert again.refusal is None
    assert again.levels[0].requests == 9


def test_a_demand_larger_than_the_bucket_will_never_fit() -> None:
    made = account(share=0.9)
    refused = made.reserve(demand("a", 901, Quota(tokens_per_minute=1000)), 0).refusal
    assert refused is not None
    assert refused.retry_s is None
    assert made.reserve(demand("a", 900, Quota(tokens_per_minute=1000)), 0).refusal is None


def test_a_request_may_take_no_more_than_its_share_of_what_is_left() -> None:
    made, quota = account(share=0.9), Quota(tokens_per_minute=1000)
    made.reserve(demand("a", 500, quota), 0)
    refused = made.reserve(demand("b", 451, quota), 0).refusal
    assert refused is not None
    assert refused.kind is Kind.TOKENS
    assert refused.retry_s == pytest.approx((451 / 0.9 - 500) / 1000 * 60)
    assert made.reserve(demand("b", 450, quota), 0).refusal is None


def test_a_models_limits_hold_beside_the_tenants() -> None:
    made, tenant, model = account(), Quota(concurrency=5, tokens_per_minute=1000), Quota(concurrency=1)
    assert made.reserve(demand("a", 1, tenant, model), 0).refusal is None
    refused = made.reserve(demand("b", 1, tenant, model), 0).refusal
    assert refused is not None
    assert (refused.kind, refused.of_model) == (Kind.CONCURRENCY, True)
    assert made.reserve(Demand("b", "acme", "other", 1, tenant), 0).refusal is None


def test_slots_of_the_dead_expire_and_the_charge_stays() -> None:
    made, quota = account(), Quota(concurrency=1, tokens_per_minute=60)
    made.reserve(demand("a", 60, quota), 0)
    assert made.reserve(demand("b", 1, quota), LEASE_MS - 1).refusal is not None
    verdict = made.reserve(demand("b", 1, quota), LEASE_MS)
    assert verdict.refusal is None
    assert verdict.levels[0].tokens == pytest.approx(60 * LEASE_MS / 60_000 - 1)
    assert not made.settle(demand("a", 60, quota), 0, 60, LEASE_MS)


def test_a_lease_that_expired_is_renewed_only_where_there_is_room() -> None:
    made, quota = account(), Quota(concurrency=1)
    made.reserve(demand("a", 1, quota), 0)
    assert made.renew(demand("a", 1, quota), LEASE_MS), "nobody took its place"
    made.reserve(demand("b", 1, quota), 2 * LEASE_MS)
    assert not made.renew(demand("a", 1, quota), 2 * LEASE_MS)
    assert made.held(2 * LEASE_MS) == 1


def test_a_clock_that_goes_back_fills_nothing_and_ends_no_lease_later() -> None:
    made, quota = account(), Quota(concurrency=1, tokens_per_minute=60_000)
    hour = 3_600_000.0
    made.reserve(demand("a", 60_000, quota), hour)
    refused = made.reserve(demand("b", 1, quota), 0)
    assert refused.levels[0].tokens == 0
    assert made.reserve(demand("b", 1, quota), LEASE_MS).refusal is None, (
        "the lease and the filling count from the new time"
    )


def test_a_clock_that_leaps_fills_a_bucket_to_the_brim_at_most() -> None:
    made, quota = account(), Quota(requests_per_minute=3)
    made.reserve(demand("a", 0, quota), 0)
    assert made.reserve(demand("b", 0, quota), 1e15).levels[0].requests == 2


def test_a_lowered_limit_counts_at_once_and_a_raised_one_fills_up() -> None:
    made = account()
    made.reserve(demand("a", 0, Quota(tokens_per_minute=1000)), 0)
    assert made.reserve(demand("b", 0, Quota(tokens_per_minute=10)), 0).levels[0].tokens == 10
    assert made.reserve(demand("c", 0, Quota(tokens_per_minute=1000)), 0).levels[0].tokens == 10


def test_a_client_is_told_the_budget_with_less_left() -> None:
    wanted = demand("a", 1, Quota(requests_per_minute=10, tokens_per_minute=1000), Quota(tokens_per_minute=500))
    told = allowance(wanted, (Level(5, 400), Level(None, 450.5)))
    assert told.tokens is not None
    assert told.requests is not None
    assert (told.tokens.limit, told.tokens.remaining) == (1000, 400)
    assert told.tokens.reset_s == pytest.approx(36)
    assert told.requests.reset_s == pytest.approx(30)
    assert allowance(demand("a"), (Level(), Level())).tokens is None
    in_debt = allowance(demand("a", 1, Quota(tokens_per_minute=100)), (Level(None, -50), Level())).tokens
    assert in_debt is not None
    assert (in_debt.remaining, in_debt.reset_s) == (0, 90)


def test_an_account_begins_with_what_is_known_elsewhere() -> None:
    made, wanted = account(), demand("c", 1, Quota(concurrency=2, tokens_per_minute=1000))
    made.start_from(wanted, (Level(None, 5), Level()), [("a", "m"), ("b", "other")], 0)
    refused = made.reserve(wanted, 0)
    assert refused.refusal is not None
    assert refused.levels[0].tokens == 5
