"""I5 on a router and two workers with real gRPC and a real Valkey, at twice and three times what they can do.

The engines make a fixed number of tokens a second in each slot, so that what they can do hardly depends on the machine.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from redis.asyncio import Redis

from benchmarks.simulate.live import LiveClient
from benchmarks.simulate.results import Outcome, quantile
from benchmarks.simulate.scenario import Scenario, Tier
from streamway.simulation.settings import SimulationSettings
from tests.support.router_mesh import mesh, until
from tests.support.two_workers import simulated, worker
from tests.support.valkey_server import ValkeyServer

SLOTS, RATE, TOKENS = 4, 40.0, 20
SERVICE_S: Final = TOKENS / RATE
CAPACITY_PER_S: Final = 2 * SLOTS / SERVICE_S
DURATION_S: Final = 60.0 if os.environ.get("FULL") == "1" else 8.0
# Until every queue has filled.
WARM_S: Final = 2.0

WEIGHTS: Final = {"gold": 4, "silver": 2, "bronze": 1}
TENANTS = """
tenants:
  gold: {tier: gold, weight: 4, concurrency: unlimited}
  silver: {tier: silver, weight: 2, concurrency: unlimited}
  bronze: {tier: bronze, weight: 1, concurrency: unlimited}
  bulk: {tier: bronze, weight: 1, concurrency: unlimited}
"""
MIX = Scenario(
    "mix",
    workers=2,
    engine=SimulationSettings(slots=SLOTS, tokens_per_s=RATE),
    duration_s=DURATION_S,
    turns_per_s=2 * CAPACITY_PER_S,
    sessions=2000,
    exponent=0.0,
    system_tokens=20,
    user_tokens=(10, 20),
    answer_tokens=(TOKENS, TOKENS),
)


@pytest.fixture
def shared(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "tenants.yaml"
    path.write_text(TENANTS, encoding="utf-8")
    return {"mesh_token": "secret", "tenants_file": path}


async def _asked(valkey: Redis, url: str, shared: dict[str, Any], scenario: Scenario) -> list[Outcome]:
    async with (
        worker(url, "adapter-0", simulated(rate=RATE, slots=SLOTS)),
        worker(url, "adapter-1", simulated(rate=RATE, slots=SLOTS)),
        mesh(valkey, url, workers=0, poll_s=0.1, shared=shared) as made,
    ):
        await until(lambda: len(made.app._made().registry.all()) == 2)
        return await LiveClient(scenario, metadata=made.metadata).run(made.app.address)


def _tokens(outcomes: list[Outcome]) -> Counter[str]:
    """Made while the load was on and every queue full, by tier."""
    counted: Counter[str] = Counter()
    for one in outcomes:
        if WARM_S < one.ended_at < DURATION_S:
            counted[one.tier] += one.made_tokens
    return counted


@pytest.mark.alone
async def test_i5_at_twice_the_load_with_four_fifths_bulk_interactive_work_waits_within_its_bound(
    valkey: Redis, valkey_server: ValkeyServer, shared: dict[str, Any]
) -> None:
    scenario = replace(MIX, tiers=(Tier("gold", 0.2, 4, 0), Tier("bulk", 0.8, 1, -1)))
    outcomes = await _asked(valkey, valkey_server.url, shared, scenario)
    gold = [one for one in outcomes if one.tier == "gold"]
    served = [one.wait_s for one in gold if one.first_at >= 0]
    assert len(served) >= 0.9 * len(gold), "bulk does not shut it out"
    # A full lane of its own, twice a depth of four, at the pace of the slots, and a running task before it.
    bound_s = (8 / SLOTS + 1) * max(SERVICE_S, _service_s(outcomes))
    assert quantile(served, 0.99) <= bound_s + 0.5
    tokens = _tokens(outcomes)
    assert tokens["bulk"] >= 0.10 * tokens.total()
    _told_when_to_come_back(outcomes)


@pytest.mark.alone
async def test_i5_where_all_ask_for_more_than_their_part_tokens_follow_weights_and_bulk_gets_a_tenth(
    valkey: Redis, valkey_server: ValkeyServer, shared: dict[str, Any]
) -> None:
    tiers = (*(Tier(name, 0.28, weight, 0) for name, weight in WEIGHTS.items()), Tier("bulk", 0.16, 1, -1))
    scenario = replace(MIX, tiers=tiers, turns_per_s=3 * CAPACITY_PER_S)
    outcomes = await _asked(valkey, valkey_server.url, shared, scenario)
    tokens = _tokens(outcomes)
    # What is counted begins and ends in the middle of tasks, a few more or less at each worker.
    assert tokens["bulk"] + 3 * TOKENS >= 0.10 * tokens.total()
    interactive = tokens.total() - tokens["bulk"]
    for name, weight in WEIGHTS.items():
        assert tokens[name] / interactive == pytest.approx(weight / sum(WEIGHTS.values()), abs=0.05), tokens
    _told_when_to_come_back(outcomes)


def _service_s(outcomes: list[Outcome]) -> float:
    """A slot's time for an answer, as it was: on a busy machine tokens come later than the engine's rate says."""
    return quantile([one.ended_at - one.first_at for one in outcomes if one.made_tokens == TOKENS], 0.9)


def _told_when_to_come_back(outcomes: list[Outcome]) -> None:
    refused = [one for one in outcomes if one.refused]
    assert refused
    assert {(one.refused, one.http) for one in refused} == {("queue_full", 429)}
    assert all(one.retry_after_s for one in refused)
