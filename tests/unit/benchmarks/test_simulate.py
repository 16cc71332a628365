"""The simulation: what it says is worth as much as these hold."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from benchmarks.simulate.results import Outcome, jain, quantile, summarize
from benchmarks.simulate.scenario import AFFINITY, OVERLOAD, TIERS, Scenario
from benchmarks.simulate.world import World
from services.router.core.strategy import StrategyName

SMALL = replace(AFFINITY, workers=4, turns_per_s=20, duration_s=20, sessions=200)


def _run(scenario: Scenario, strategy: StrategyName = "ring", *, fair: bool = True) -> list[Outcome]:
    return World(scenario, strategy, fair=fair).run()


def test_the_same_seed_gives_the_same_outcomes_and_another_other_ones() -> None:
    first = [asdict(one) for one in _run(SMALL)]
    assert first == [asdict(one) for one in _run(SMALL)]
    assert first != [asdict(one) for one in _run(replace(SMALL, seed=2))]


def test_every_turn_ends_once_and_a_session_has_one_at_a_time() -> None:
    outcomes = _run(SMALL)
    assert len(outcomes) == len(list(SMALL.turns()))
    ended: dict[int, float] = {}
    for one in outcomes:
        assert one.first_at >= one.asked_at
        assert one.made_tokens > 0
        assert one.asked_at >= ended.get(one.session, 0.0)
        ended[one.session] = one.first_at


def test_affinity_finds_more_in_kv_and_answers_sooner_than_the_least_loaded() -> None:
    ring, least = (summarize(_run(SMALL, name), []) for name in ("ring", "least_loaded"))
    assert ring.same_worker > 0.9 > least.same_worker
    assert ring.kv_hits > least.kv_hits + 0.1
    assert ring.ttft_ms["p99"] < least.ttft_ms["p99"]


def test_several_routers_agree_without_talking() -> None:
    one, three = (summarize(_run(replace(SMALL, routers=routers)), []) for routers in (1, 3))
    assert three.kv_hits > one.kv_hits - 0.03
    assert three.same_worker > one.same_worker - 0.05


def test_i5_at_twice_the_load_gold_waits_far_less_nobody_else_shuts_it_out_and_bronze_gets_its_part() -> None:
    asked = replace(OVERLOAD, workers=2, turns_per_s=40, duration_s=20, sessions=1000)
    in_order, by_tier = (summarize(_run(asked, fair=fair), []) for fair in (False, True))
    assert by_tier.tiers["gold"]["p95"] < 0.25 * in_order.tiers["gold"]["p95"]
    assert by_tier.tiers["bronze"]["tokens"] >= 0.10
    assert by_tier.tiers["gold"]["refused"] < 0.05 < 0.2 < in_order.tiers["gold"]["refused"]
    assert by_tier.refused <= in_order.refused + 0.02


def test_i5_where_every_tier_asks_for_more_than_its_part_tokens_follow_weights() -> None:
    alike = tuple(replace(tier, share=1 / 3, priority=0) for tier in TIERS)
    asked = replace(OVERLOAD, workers=2, turns_per_s=60, duration_s=40, sessions=1000, tiers=alike, preload_depth=4)
    found = summarize([one for one in _run(asked) if one.asked_at > 5], []).tiers
    for tier in alike:
        due = tier.weight / sum(other.weight for other in alike)
        assert found[tier.name]["tokens"] == pytest.approx(due, abs=0.05), tier.name


def test_e2_a_worker_that_comes_is_moved_to_and_the_others_do_not_notice() -> None:
    asked = replace(SMALL, duration_s=40)
    joined = World(replace(asked, joins_at_s=20))
    after = [one for one in joined.run() if one.asked_at > 20]
    before = {one.session for one in joined.outcomes if one.asked_at < 20}
    moved = {one.session for one in after if one.worker == "adapter-4"} & before
    assert 0.05 * len(before) < len(moved) < 0.3 * len(before)
    without = [one.wait_s for one in _run(asked) if one.asked_at > 20 and one.session not in moved]
    others = [one.wait_s for one in after if one.session not in moved]
    assert quantile(others, 0.99) < 1.10 * quantile(without, 0.99)


def test_jain_and_quantiles() -> None:
    assert jain([3.0, 3.0, 3.0]) == pytest.approx(1.0)
    assert jain([6.0, 0.0, 0.0]) == pytest.approx(1 / 3)
    assert jain([]) == jain([0.0]) == 1.0
    assert (quantile([], 0.5), quantile([3, 1, 2], 0.5), quantile([1, 2], 0.99)) == (0.0, 2, 2)
