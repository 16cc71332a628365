import pytest

from services.cache.core.allowance import CAUTION, CREDIT, MEMORY, Allowance, stands_for


def after(requests: int, wrong: float = 0.01) -> Allowance:
    allowance = Allowance(wrong)
    for _ in range(requests):
        allowance.request()
    return allowance


def test_three_in_four_are_compared_at_first_and_ever_fewer_while_nothing_is_found_wrong():
    shares = [after(requests).audit for requests in (0, 100, 1_000, 3_000)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == pytest.approx(0.75)
    assert shares[-1] < 0.1


def test_a_larger_budget_allows_more_and_so_compares_less():
    assert after(1_000, 0.02).audit < after(1_000, 0.01).audit


def test_what_was_found_wrong_stands_for_those_that_nobody_compared():
    allowance = after(1_000)
    before = allowance.balance
    allowance.found_wrong(1.0)
    assert allowance.balance == before
    allowance.found_wrong(0.25)
    assert allowance.balance == pytest.approx(before - 3)
    assert stands_for(0.5) == 1


def test_one_finding_costs_a_part_of_the_balance_and_makes_more_be_compared():
    allowance = after(2_000)
    balance, share = allowance.balance, allowance.audit
    allowance.found_wrong(share)
    assert allowance.balance == pytest.approx(balance * (1 - 1 / CAUTION))
    assert allowance.audit > share


def test_everything_is_compared_while_it_is_overdrawn_as_many_at_once_can_make_it():
    allowance = after(100)
    for _ in range(50):
        allowance.found_wrong(0.2)
    assert allowance.balance < 0
    assert allowance.audit == 1.0
    while allowance.balance <= 0:
        allowance.request()
    assert allowance.audit < 1


def test_what_was_saved_long_ago_is_not_for_spending():
    assert after(50_000).balance <= CREDIT + 0.01 * MEMORY


def test_it_goes_on_where_another_was_within_what_its_budget_could_have_saved():
    one, other = after(500), Allowance(0.01)
    other.restore(one.balance)
    assert other.audit == one.audit
    other.restore(1e9)
    assert other.balance == CREDIT + 0.01 * MEMORY
