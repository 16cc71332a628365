"""The ledger: what is posted, and that it balances."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cache.core.books import Books
from services.cache.core.savings import CREDITS, DEBITS, Account, Amount, Prices
from services.cache.core.semantic.switch import Terms
from streamway.models.prices import Price
from streamway.v1 import cache_pb2, common_pb2

PRICES = Prices(tokens=Price(1.0, 2.0, 1.0), second=0.5, wrong_factor=5.0)
amounts = st.builds(Amount, st.integers(0, 10**6), st.integers(0, 1000).map(float), st.integers(0, 1000).map(float))


def answer(prompt: int = 1_000_000, completion: int = 500_000, offset_ms: int = 1500) -> cache_pb2.CachedAnswer:
    usage = common_pb2.Usage(prompt_tokens=prompt, completion_tokens=completion)
    events = [common_pb2.Event(offset_ms=0), common_pb2.Event(offset_ms=offset_ms)]
    return cache_pb2.CachedAnswer(entry="e", usage=usage, events=events)


def books() -> Books:
    return Books(PRICES, Terms(), lambda tenant, entry: answer() if (tenant, entry) == ("t", "e") else None)


@given(st.lists(st.tuples(st.sampled_from([*CREDITS, *DEBITS]), amounts), max_size=30))
def test_the_balance_is_all_credits_without_all_debits(postings: list[tuple[str, Amount]]) -> None:
    semantic: list[float] = []
    account = Account(semantic.append)
    expected = Amount()
    for name, amount in postings:
        if name in CREDITS:
            account.credit(name, amount)  # type: ignore[arg-type]
            expected += amount
        else:
            account.debit(name, amount)  # type: ignore[arg-type]
            expected -= amount
    assert account.balance == expected
    assert sum(account.count(name) for name in (*CREDITS, *DEBITS)) == len(postings)
    of_others = account.amount("exact").money + account.amount("folded").money
    assert sum(semantic) == account.balance.money - of_others


def test_an_answer_is_worth_its_tokens_at_their_prices_and_the_time_it_took() -> None:
    assert books().worth(answer()) == Amount(1_500_000, 2.0, 1.5)


def test_a_model_with_a_price_of_its_own_is_worth_that() -> None:
    kept = Books(PRICES, Terms(), lambda *_: None, lambda: {"dear": Price(10.0, 20.0, 10.0)})
    dear = answer()
    dear.model = "dear"
    assert (kept.worth(dear).money, kept.worth(answer()).money) == (20.0, 2.0)


@pytest.mark.parametrize(
    ("outcome", "level"),
    [
        (cache_pb2.CACHE_OUTCOME_HIT_EXACT, "exact"),
        (cache_pb2.CACHE_OUTCOME_HIT_FOLDED, "folded"),
        (cache_pb2.CACHE_OUTCOME_HIT_SEMANTIC, "semantic"),
    ],
)
def test_each_level_has_its_own_line(outcome: cache_pb2.CacheOutcome.ValueType, level: str) -> None:
    kept = books()
    kept.replied("t", cache_pb2.LookupResponse(outcome=outcome, answer=answer()))
    lines = {name: kept.of("t").account.count(name) for name in CREDITS}
    assert lines == {name: int(name == level) for name in CREDITS}


def test_a_miss_posts_nothing() -> None:
    kept = books()
    kept.replied("t", cache_pb2.LookupResponse(outcome=cache_pb2.CACHE_OUTCOME_MISS))
    assert kept.known("t") is None


def test_an_audit_saves_nothing() -> None:
    kept = books()
    kept.audited("t", "e")
    account = kept.of("t").account
    assert (account.count("semantic"), account.count("audits"), account.balance) == (1, 1, Amount())


def test_a_wrong_answer_costs_a_multiple_of_what_it_saved_for_each_it_stands_for() -> None:
    kept = books()
    kept.wrong("t", "e", 19.0)
    assert kept.of("t").account.balance.money == -2.0 * 5.0 * 19.0


def test_the_encoders_time_is_paid() -> None:
    kept = books()
    kept.worked("t", "embedding", 0.5)
    assert kept.of("t").account.balance == Amount(0, -0.25, -0.5)


def test_what_is_said_of_an_entry_that_has_gone_posts_nothing() -> None:
    kept = books()
    kept.audited("t", "gone")
    kept.wrong("other", "e", 1.0)
    assert (kept.known("t"), kept.known("other")) == (None, None)


def test_tenants_have_their_own_accounts_and_the_sum_has_both() -> None:
    kept = books()
    for tenant in ("t", "u", "u"):
        kept.replied(tenant, cache_pb2.LookupResponse(outcome=cache_pb2.CACHE_OUTCOME_HIT_EXACT, answer=answer()))
    assert [kept.of(tenant).account.count("exact") for tenant in ("t", "u", "v")] == [1, 2, 0]
    assert kept.total.count("exact") == 3
