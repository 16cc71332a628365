"""How many generations an engine gets at a time; docs/design.md §7."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from services.inference_adapter.core.concurrency import Concurrency, LimitRule, Surroundings, Why

QUIET = Surroundings(cpu=0.1, kv_used=0.1, mesh_generations=10)
CROWDED = Surroundings(cpu=0.1, kv_used=0.1, mesh_generations=501)


class Worker:
    """A limit in a time of its own; each look is five seconds after the one before."""

    def __init__(self, slots: int = 64, *, elastic: bool = False, **rule: float) -> None:
        self.now = 0.0
        self.concurrency = Concurrency(LimitRule.model_validate(rule), slots, self.now, elastic=elastic)

    @property
    def limit(self) -> int:
        return self.concurrency.limit

    def look(
        self, first_tokens_ms: list[float], around: Surroundings = QUIET, *, running: int | None = None
    ) -> Why | None:
        """Five seconds with these first tokens; without `running` the limit is in use."""
        for took in first_tokens_ms:
            self.concurrency.first_token(took / 1000)
        self.now += 5.0
        assert self.concurrency.tick(self.limit if running is None else running, self.now)
        return self.concurrency.look(around, self.now)


def test_late_first_tokens_of_a_worker_in_use_lower_the_limit_by_five_down_to_the_floor() -> None:
    worker = Worker(slots=22)
    assert worker.look([250.0] * 20) == "first_token"
    assert worker.limit == 17
    assert [worker.look([250.0] * 20) for _ in range(3)] == ["first_token", "first_token", None]
    assert worker.limit == 10


def test_quick_first_tokens_and_a_low_load_raise_it_by_ten_up_to_the_ceiling() -> None:
    worker = Worker(slots=64, elastic=True, ceiling=80)
    assert worker.look([50.0] * 20, running=40) == "room"
    assert worker.limit == 74
    assert [worker.look([50.0] * 20, running=40) for _ in range(2)] == ["room", None]
    assert worker.limit == 80


def test_it_goes_down_under_load_and_up_again_when_first_tokens_are_quick() -> None:
    worker = Worker(slots=64)
    lowest = [worker.look([400.0] * 50) and worker.limit for _ in range(8)][-1]
    assert lowest == 24
    # The late ones are looked at for thirty seconds; then ten slots of 64, all in use, are a low load.
    seen = [worker.look([50.0] * 50) for _ in range(12)]
    assert seen == ["first_token"] * 3 + [None] * 2 + ["room"] * 4 + [None] * 3
    assert worker.limit == 50


@pytest.mark.parametrize(
    ("around", "running", "moved"),
    [
        (QUIET, 51, False),  # 80 % of 64 is 51.2
        (QUIET, 52, True),
        (CROWDED, 1, True),
        (Surroundings(0.1, None, 500), 1, False),
    ],
)
def test_it_goes_down_only_when_the_worker_or_the_mesh_is_full(
    around: Surroundings, running: int, *, moved: bool
) -> None:
    worker = Worker(slots=64)
    assert (worker.look([250.0] * 20, around, running=running) == "first_token") is moved
    assert worker.limit == (59 if moved else 64)


def test_it_is_the_p95_that_counts_at_both_ends() -> None:
    assert Worker().look([250.0] + [150.0] * 19) is None
    assert Worker().look([250.0] * 2 + [150.0] * 18) == "first_token"
    assert Worker(64, elastic=True).look([150.0] + [99.0] * 19, running=10) == "room"
    assert Worker(64, elastic=True).look([150.0] * 2 + [99.0] * 18, running=10) is None
    # On the edge it is neither late nor quick.
    assert Worker(64, elastic=True).look([200.0] * 20, CROWDED, running=10) is None
    assert Worker(64, elastic=True).look([100.0] * 20, CROWDED, running=10) is None


def test_a_handful_of_calls_says_nothing() -> None:
    worker = Worker()
    assert worker.look([5000.0] * 9, CROWDED) is None
    assert worker.look([5000.0], CROWDED) == "first_token"
    assert Worker(64, elastic=True).look([10.0] * 9, running=0) is None


def test_thirty_seconds_are_looked_at_and_no_more() -> None:
    worker = Worker()
    assert worker.look([250.0] * 20) == "first_token"
    assert [worker.look([]) for _ in range(6)] == ["first_token"] * 5 + [None]


def test_a_clock_that_stood_still_for_long_leaves_nothing_of_before() -> None:
    worker = Worker()
    worker.look([250.0] * 20, running=0)
    worker.now += 3600
    assert worker.look([], CROWDED) is None


def test_cpu_lowers_it_only_above_eighty_percent_and_while_it_rises() -> None:
    def looks(*shares: float, mesh_generations: int = 501) -> list[Why | None]:
        worker = Worker()
        return [worker.look([], Surroundings(share, None, mesh_generations), running=0) for share in shares]

    assert looks(0.7, 0.79, 0.9) == [None, None, None]  # 80 % over the whole time are not reached
    assert looks(0.9, 0.95) == [None, "cpu"]
    assert looks(0.95, 0.9) == [None, None]
    assert looks(0.9, 0.95, mesh_generations=500) == [None, None]


@pytest.mark.parametrize(
    ("running", "cpu", "kv_used", "raised"),
    [
        (44, 0.1, None, True),
        (45, 0.1, None, False),
        (10, 0.7, None, False),
        (10, 0.1, 0.7, False),
        (10, 0.1, 0.69, True),
    ],
)
def test_it_goes_up_only_with_room_in_slots_cpu_and_kv(
    running: int, cpu: float, kv_used: float | None, *, raised: bool
) -> None:
    worker = Worker(64, elastic=True)
    assert (worker.look([50.0] * 20, Surroundings(cpu, kv_used, 0), running=running) == "room") is raised


def test_a_low_limit_that_is_always_in_use_goes_up_again() -> None:
    """Its load is told against the slots: against the limit it would be 100 % for ever."""
    worker = Worker(slots=64)
    worker.concurrency.limit = 10
    assert [worker.look([50.0] * 20) for _ in range(5)] == ["room"] * 4 + [None]
    assert worker.limit == 50


@pytest.mark.parametrize("slots", [1, 2, 4, 9, 10])
def test_an_engine_with_few_slots_always_gets_all_of_them_and_never_more(slots: int) -> None:
    worker = Worker(slots)
    assert [worker.look([5000.0] * 20) for _ in range(3)] == [None] * 3
    assert [worker.look([5.0] * 200, running=0) for _ in range(9)] == [None] * 9
    assert worker.limit == slots


def test_an_engine_that_has_said_its_slots_never_gets_more_even_above_the_ceiling_it_keeps_them() -> None:
    worker = Worker(slots=1000)
    assert worker.look([250.0] * 20) == "first_token"
    worker.now += 60
    assert [worker.look([5.0] * 20, running=10) for _ in range(2)] == ["room", None]
    assert worker.limit == 1000


def test_a_memory_that_is_nearly_full_takes_one_at_each_look_and_gives_them_back() -> None:
    worker = Worker(slots=3)
    assert (worker.concurrency.why, worker.limit) == ("", 3)
    full = Surroundings(cpu=0.1, kv_used=0.1, mesh_generations=0, memory_pressed=True)
    assert [worker.look([], full) for _ in range(3)] == ["memory", "memory", None]
    assert (worker.limit, worker.concurrency.why) == (1, "memory")
    assert [worker.look([], running=0) for _ in range(3)] == ["memory", "memory", None]
    assert worker.limit == 3


def test_late_first_tokens_raise_no_limit_that_memory_has_lowered() -> None:
    worker = Worker(slots=3)
    full = Surroundings(cpu=0.1, kv_used=0.1, mesh_generations=0, memory_pressed=True)
    worker.look([], full)
    worker.look([], full)
    assert worker.look([500.0] * 20) != "first_token"
    assert worker.limit <= 2


def test_steps_of_zero_hold_it_still() -> None:
    worker = Worker(64, elastic=True, step_down=0, step_up=0)
    assert worker.look([250.0] * 20) is None
    worker.now += 60
    assert worker.look([5.0] * 20, running=0) is None
    assert worker.limit == 64


def test_it_is_not_looked_at_before_five_seconds_and_what_ran_counts_in_the_mean() -> None:
    concurrency = Concurrency(LimitRule(), 64, 0.0, elastic=False)
    for _ in range(20):
        concurrency.first_token(1.0)
    assert not concurrency.tick(64, 1.0)
    assert not concurrency.tick(0, 4.99)
    assert concurrency.tick(64, 5.0)
    # Two thirds of the limit in the mean: a moment at the top is not enough.
    assert concurrency.look(QUIET, 5.0) is None


@pytest.mark.parametrize("wrong", [{"quick_ms": 300.0}, {"window_s": 1.0}, {"floor": 0}, {"flor": 3}])
def test_a_rule_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        LimitRule.model_validate(wrong)
