"""The search for settings: what it says of connections and events, and that it finds something."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from benchmarks.simulate.results import Outcome
from benchmarks.simulate.scenario import LIVE
from benchmarks.simulate.world import World
from benchmarks.tune.costs import Costs
from benchmarks.tune.model import Model, connected, merged
from benchmarks.tune.parameters import DEFAULT, Configuration, at, steps_of
from benchmarks.tune.search import choose, search
from services.inference_adapter.settings import AdapterSettings

SMALL = replace(LIVE, workers=2, turns_per_s=5.0, duration_s=6.0, sessions=8, answer_tokens=(5, 10))
COSTS = Costs(token_us=40, event_us=50, connection_us=200, connection_ms=0.5)


def _turn(begun: float, ended: float, *tokens: float) -> Outcome:
    return Outcome(1, "all", begun, begun_at=begun, first_at=begun + 0.1, ended_at=ended, token_times=list(tokens))


def test_a_turn_gets_the_connection_that_was_used_last_unless_it_is_too_old_or_there_is_no_room() -> None:
    turns = [_turn(0, 1), _turn(0.5, 2), _turn(2.5, 3), _turn(7.9, 9), _turn(14.1, 15)]
    # The third finds that of the second; the fourth too, idle for 4.9 s; the fifth comes when the engine has closed all.
    assert connected(turns, DEFAULT)[0] == {0, 1, 4}
    assert connected(turns, DEFAULT)[1] == 2
    assert connected(turns, replace(DEFAULT, kept_s=2.0))[0] == {0, 1, 3, 4}
    assert connected(turns, replace(DEFAULT, kept_connections=0)) == ({0, 1, 2, 3, 4}, 0)


def test_tokens_within_a_window_are_one_event_but_the_first_and_the_last() -> None:
    one, other = _turn(0, 1, 0.100, 0.110, 0.115, 0.150, 0.160), _turn(0, 1, 0.100, 0.112, 0.300)
    assert merged([one, other], 0.020) == [
        pytest.approx([0.100, 0.130, 0.160]),
        pytest.approx([0.100, 0.130, 0.300]),
    ]
    assert len(merged([one], 0.001)[0]) == 5


def test_every_step_of_the_ladders_is_a_configuration_that_the_adapter_takes() -> None:
    assert at(steps_of(DEFAULT)) == DEFAULT
    for configuration in (DEFAULT, Configuration(0, 0.5, 2.0, 1.0, 1)):
        told = yaml.safe_load(configuration.yaml("a comment"))
        settings = AdapterSettings(**told["adapter"])
        assert settings.backend_options().kept_connections == configuration.kept_connections
    assert AdapterSettings.model_fields["preload_depth"].default == DEFAULT.preload_depth
    assert AdapterSettings.model_fields["flush_ms"].default == DEFAULT.flush_ms
    assert AdapterSettings.model_fields["queue_timeout_s"].default == DEFAULT.queue_timeout_s


def test_the_search_finds_a_front_that_holds_its_bounds_and_the_same_one_again(tmp_path: Path) -> None:
    model = Model(SMALL, [1], COSTS)
    base, lines = model.figures(DEFAULT), list[str]()
    front = search(model, population=8, generations=3, seed=3, tell=lines.append)
    assert len(lines) == 3
    assert front
    for row in front:
        assert row.figures.refused <= base.refused + 0.001
        assert row.figures.gap_p99_ms <= 1.25 * base.gap_p99_ms
        for other in front:
            mine = (row.figures.p99_ms, -row.figures.reuse, row.figures.cost_us)
            its = (other.figures.p99_ms, -other.figures.reuse, other.figures.cost_us)
            assert row is other or not all(a >= b for a, b in zip(mine, its, strict=True))
    # The default is there from the beginning, so nothing that is found can be worse than it in all.
    assert min(row.figures.p99_ms for row in front) <= base.p99_ms
    assert choose(front, base) in front
    assert search(model, population=8, generations=3, seed=3, tell=lines.append) == front


def test_who_waits_too_long_for_a_slot_is_refused_and_what_runs_goes_on() -> None:
    crowded = replace(SMALL, turns_per_s=20.0, duration_s=10.0, sessions=40, preload_depth=8, answer_tokens=(40, 80))
    patient, hasty = (World(replace(crowded, queue_timeout_s=limit)).run() for limit in (300.0, 1.0))
    for outcomes in (patient, hasty):
        assert all(one.refused or one.made_tokens > 0 for one in outcomes)
    assert not any(one.refused == "queue_timeout" for one in patient)
    assert any(one.refused == "queue_timeout" for one in hasty)
    waits = [one.begun_at - one.asked_at for one in hasty if not one.refused]
    assert max(waits) <= 1.2
    assert max(one.begun_at - one.asked_at for one in patient if not one.refused) > 1.2
