"""The table of breakers: three tiers, pools, what counts, and ten minutes with a worker that flaps."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from services.router.core.breaker import State
from services.router.core.breakers import BreakerOptions, Breakers, Call, Spot
from services.router.core.decision import Candidate, Wanted
from services.router.core.outcomes import COUNTS, is_failure
from services.router.core.pool import Pool
from services.router.core.strategy import StrategyOptions, make_strategy
from streamway.errors import EventsExpired, StreamwayError
from streamway.tenancy import TierName
from streamway.v1.common_pb2 import ErrorReason

GOLD, SILVER, BRONZE = TierName.GOLD, TierName.SILVER, TierName.BRONZE


def _breakers(seed: int = 1) -> Breakers:
    return Breakers(BreakerOptions(), random.Random(seed).random)


def _pool(count: int, *, open_: int | None = None) -> Pool:
    return Pool(Candidate(f"w{n}", 4.0, 0.0, open_ is None or n < open_) for n in range(count))


def _end(breakers: Breakers, worker: str, failed: bool | None, now: float, times: int = 1) -> None:
    for _ in range(times):
        breakers.ended(breakers.placed(Spot(worker, "m", GOLD), now), failed, now)


def test_a_worker_with_eight_percent_of_failures_is_closed_to_gold_and_open_to_the_others() -> None:
    breakers, pool = _breakers(), _pool(4)
    for number in range(100):
        _end(breakers, "w0", number % 12 == 11, 1.0)
    assert breakers.barred("m", GOLD, pool, 1.0).workers == {"w0"}
    assert not breakers.barred("m", SILVER, pool, 1.0).workers
    assert not breakers.barred("m", BRONZE, pool, 1.0).workers


def test_another_model_of_the_worker_is_judged_by_itself() -> None:
    breakers = _breakers()
    _end(breakers, "w0", True, 1.0, 10)
    assert breakers.barred("m", GOLD, _pool(4), 1.0).workers
    assert not breakers.barred("other", GOLD, _pool(4), 1.0).workers


@pytest.mark.parametrize("failures", [1, 2])
def test_up_to_half_of_a_pool_may_be_barred(failures: int) -> None:
    breakers = _breakers()
    for number in range(failures):
        _end(breakers, f"w{number}", True, 1.0, 10)
    barred = breakers.barred("m", GOLD, _pool(4), 1.0)
    assert barred.workers == {f"w{number}" for number in range(failures)}
    assert not barred.panic


def test_with_more_than_half_of_a_pool_open_none_is_barred() -> None:
    breakers = _breakers()
    for number in range(3):
        _end(breakers, f"w{number}", True, 1.0, 10)
    barred = breakers.barred("m", GOLD, _pool(4), 1.0)
    assert barred.panic
    assert not barred.workers


def test_workers_that_take_nothing_anyway_do_not_count_as_the_pool() -> None:
    breakers = _breakers()
    _end(breakers, "w0", True, 1.0, 10)
    assert breakers.barred("m", GOLD, _pool(4, open_=1), 1.0).panic
    assert not breakers.barred("m", GOLD, _pool(4, open_=2), 1.0).panic


def test_every_pool_has_somebody_left() -> None:
    for size in range(1, 8):
        for bad in range(size + 1):
            breakers, pool = _breakers(), _pool(size)
            for number in range(bad):
                _end(breakers, f"w{number}", True, 1.0, 10)
            assert len(breakers.barred("m", GOLD, pool, 1.0).workers) < size


def test_a_worker_that_is_gone_is_forgotten() -> None:
    breakers = _breakers()
    _end(breakers, "w0", True, 1.0, 10)
    assert Spot("w0", "m", GOLD) in breakers.keep_only({"m"}, {"w1"})
    assert breakers.state(Spot("w0", "m", GOLD)) is State.CLOSED
    assert not breakers.barred("m", GOLD, _pool(2), 1.0).workers


def test_a_probe_of_one_that_was_forgotten_meanwhile_ends_quietly() -> None:
    breakers = _breakers()
    _end(breakers, "w0", True, 1.0, 10)
    probe = breakers.placed(Spot("w0", "m", GOLD), 10.0)
    assert probe.round
    breakers.keep_only({"m"}, set())
    breakers.ended(probe, True, 11.0)
    assert breakers.state(probe.spot) is State.CLOSED


def test_changes_are_told_once_each_with_how_long_an_open_one_waits() -> None:
    breakers = _breakers()
    _end(breakers, "w0", True, 1.0, 10)
    told = breakers.take_transitions()
    assert {(one.spot.tier, one.before, one.after) for one in told} == {
        (tier, State.CLOSED, State.OPEN) for tier in TierName
    }
    assert all(4 <= one.wait_s <= 6 for one in told)
    breakers.pass_time(2.0)
    assert not breakers.take_transitions()
    breakers.pass_time(8.0)
    assert {one.after for one in breakers.take_transitions()} == {State.HALF_OPEN}


def test_what_another_router_opened_bars_here_too_but_never_for_longer_than_ours_could() -> None:
    breakers = _breakers()
    breakers.learn(Spot("w0", "m", SILVER), 3, 1e9, 1.0)
    assert breakers.barred("m", SILVER, _pool(2), 100.0).workers == {"w0"}
    assert not breakers.barred("m", GOLD, _pool(2), 1.0).workers
    assert not breakers.barred("m", SILVER, _pool(2), 1.0 + 144.0).workers
    assert [one.learned for one in breakers.take_transitions()] == [True]


def test_the_catalogue_of_reasons_is_judged_whole() -> None:
    assert set(COUNTS) == set(ErrorReason.values()) - {ErrorReason.ERROR_REASON_UNSPECIFIED}
    assert {ErrorReason.Name(reason) for reason, counts in COUNTS.items() if counts} == {
        "ERROR_REASON_ENGINE_FAILED",
        "ERROR_REASON_WORKER_LOST",
        "ERROR_REASON_TOKEN_GAP",
        "ERROR_REASON_FIRST_TOKEN_TIMEOUT",
        "ERROR_REASON_INTERNAL",
    }


@pytest.mark.parametrize("reason", list(COUNTS), ids=ErrorReason.Name)
def test_d3_what_is_the_clients_or_load_never_opens_a_breaker(reason: ErrorReason.ValueType) -> None:
    breakers, said = _breakers(), is_failure(StreamwayError.restore(reason, "…"))
    for number in range(1000):
        _end(breakers, "w0", False if number % 4 == 0 else said, number / 10)
    assert bool(breakers.take_transitions()) is COUNTS[reason]


def test_a_worker_that_left_an_answer_to_another_is_judged_by_why() -> None:
    assert is_failure(EventsExpired("g")) is None
    assert is_failure(EventsExpired("g", moved="engine_failed")) is True
    assert is_failure(EventsExpired("g", moved="going_away")) is None
    assert is_failure(EventsExpired("g", moved="something_new")) is None


@pytest.mark.parametrize(
    ("fails", "name"),
    [
        (lambda now, draw: draw < 0.5, "every other call"),
        (lambda now, draw: int(now / 2) % 2 == 1, "2 s well, 2 s broken"),
        (lambda now, draw: int(now / 5) % 2 == 1, "5 s well, 5 s broken"),
        (lambda now, draw: True, "broken"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_d5_a_flapping_worker_gets_less_than_two_percent_in_ten_minutes(
    fails: Callable[[float, float], bool], name: str
) -> None:
    """Ten workers, 25 calls a second of half a second each, in virtual time, through the real strategy."""
    random_ = random.Random(7)
    breakers, pool = Breakers(BreakerOptions(), random_.random), _pool(10)
    strategy = make_strategy("ring", StrategyOptions())
    flying: list[tuple[float, Call]] = []
    bad, total = 0, 0
    most_probes = 0
    for step in range(600 * 25):
        now = step / 25
        while flying and flying[0][0] <= now:
            _, call = flying.pop(0)
            broken = call.spot.worker == "w0" and fails(now, random_.random())
            breakers.ended(call, broken, now)
        breakers.pass_time(now)
        barred = breakers.barred("m", GOLD, pool, now)
        wanted = Wanted("m", f"s{random_.randrange(10_000)}", 100, 100, barred=barred.workers)
        worker = strategy.choose(wanted, pool, now).worker
        call = breakers.placed(Spot(worker, "m", GOLD), now)
        flying.append((now + 0.5, call))
        total += 1
        bad += worker == "w0"
        most_probes = max(most_probes, sum(1 for _, one in flying if one.round))
    assert most_probes <= 4
    assert bad / total < 0.02, f"{name}: {bad} of {total}"
    assert breakers.barred("m", GOLD, pool, 600.0).workers <= {"w0"}
