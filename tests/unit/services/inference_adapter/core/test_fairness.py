from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.inference_adapter.core.fairness import DeficitRoundRobin, Waiting


def waiting(arrival: int, cost: int, priority: int = 0) -> Waiting:
    return Waiting((-priority, arrival), str(arrival), cost)


def backlog(turns: DeficitRoundRobin, tenant: str, weight: int, cost: int, tasks: int) -> None:
    for number in range(tasks):
        turns.add(tenant, weight, Waiting((0, number), f"{tenant}{number}", cost))


@pytest.mark.parametrize("weights", [{"a": 1, "b": 1}, {"a": 4, "b": 2, "c": 1}, {"a": 7, "b": 1}])
def test_i5_token_shares_follow_weights_whatever_the_size_of_tasks(weights: dict[str, int]) -> None:
    turns, costs = DeficitRoundRobin(), {"a": 900, "b": 60, "c": 333}
    for tenant, weight in weights.items():
        backlog(turns, tenant, weight, costs[tenant], 10_000)
    spent: Counter[str] = Counter()
    while spent.total() < 600_000:
        found = turns.next()
        assert found is not None
        tenant, task = found
        spent[tenant] += task.cost
    for tenant, weight in weights.items():
        share, due = spent[tenant] / spent.total(), weight / sum(weights.values())
        assert share == pytest.approx(due, abs=0.05 * due)


def test_inside_a_tenant_priority_goes_before_arrival() -> None:
    turns = DeficitRoundRobin()
    for task in (waiting(1, 10), waiting(2, 10), waiting(3, 10, priority=5)):
        turns.add("a", 1, task)
    assert [found[1].id for found in iter(turns.next, None)] == ["3", "1", "2"]


def test_a_tenant_saves_nothing_up_while_it_wants_nothing() -> None:
    turns = DeficitRoundRobin()
    backlog(turns, "busy", 1, 100, 1000)
    for _ in range(500):
        turns.next()
    backlog(turns, "late", 1, 100, 100)
    first = [found[0] for _ in range(40) if (found := turns.next())]
    assert 10 <= first.count("late") <= 30


def test_what_a_task_cost_more_than_estimated_its_tenant_owes_even_after_a_rest() -> None:
    turns = DeficitRoundRobin()
    turns.correct("liar", 10, 10 + 5000)
    backlog(turns, "liar", 1, 100, 50)
    backlog(turns, "honest", 1, 100, 50)
    assert [found[0] for _ in range(45) if (found := turns.next())].count("honest") > 40


def test_a_task_started_out_of_turn_is_paid_by_its_tenant() -> None:
    turns = DeficitRoundRobin()
    urgent = waiting(99, 5000)
    turns.add("a", 1, urgent)
    backlog(turns, "a", 1, 100, 20)
    backlog(turns, "b", 1, 100, 20)
    turns.take("a", urgent)
    assert [found[0] for _ in range(20) if (found := turns.next())] == ["b"] * 20


def test_who_starts_out_of_turn_and_gets_no_more_than_its_part_has_its_turn_when_it_wants_one() -> None:
    turns = DeficitRoundRobin()
    backlog(turns, "busy", 1, 100, 3000)
    for number in range(200):
        urgent = waiting(10_000 + number, 100)
        turns.add("vip", 1, urgent)
        turns.take("vip", urgent)
        for _ in range(2):
            turns.next()
    backlog(turns, "vip", 1, 100, 20)
    first = [found[0] for _ in range(20) if (found := turns.next())]
    assert first.count("vip") >= 8, "it owes nothing for two hundred that it had long paid for"


def test_what_was_used_while_nobody_else_wanted_anything_is_owed_for_a_few_rounds_only() -> None:
    turns = DeficitRoundRobin()
    for number in range(10_000):
        alone = waiting(number, 1000)
        turns.add("early", 1, alone)
        turns.take("early", alone)
    backlog(turns, "early", 1, 256, 50)
    backlog(turns, "late", 1, 256, 50)
    assert [found[0] for _ in range(40) if (found := turns.next())].count("early") >= 12


def test_tenants_that_rest_are_forgotten_in_the_end() -> None:
    turns = DeficitRoundRobin()
    for number in range(3000):
        turns.correct(str(number), 1, 2)
    assert len(turns._flows) <= 1025


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.integers(1, 100_000), st.booleans()), max_size=60)
)
def test_everything_that_is_not_removed_comes_out_once(steps: list[tuple[str, int, int, bool]]) -> None:
    turns, inside, out = DeficitRoundRobin(), {}, []
    for number, (tenant, weight, cost, remove) in enumerate(steps):
        task = waiting(number, cost)
        turns.add(tenant, weight, task)
        inside[task.id] = (tenant, task)
        if remove:
            turns.remove(*inside.pop(next(iter(inside))))
    assert len(turns) == len(inside)
    while (found := turns.next()) is not None:
        out.append(found[1].id)
    assert sorted(out) == sorted(inside)
