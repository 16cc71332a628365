"""Which engine calls are given up for silence, and when."""

from __future__ import annotations

from services.inference_adapter.core.silence import Silence, SilenceLimits, SilenceWatch

LIMITS = SilenceLimits(8.0, 0.0, 10.0, {"slow": 60.0, "never": 0.0})


def test_interactive_work_has_the_limit_of_its_model_and_bulk_work_one_of_its_own() -> None:
    assert LIMITS.first_token_of("m", bulk=False) == 8.0
    assert LIMITS.first_token_of("slow", bulk=False) == 60.0
    assert LIMITS.first_token_of("never", bulk=False) == 0.0
    assert LIMITS.first_token_of("slow", bulk=True) == 0.0
    assert SilenceLimits(8.0, 90.0).first_token_of("m", bulk=True) == 90.0


def test_the_first_token_is_waited_for_from_the_call_on() -> None:
    watch = SilenceWatch(8.0, 10.0)
    watch.began(100.0)
    assert watch.look(107.9) is None
    assert watch.look(108.0) is Silence.FIRST_TOKEN


def test_once_tokens_flow_only_a_gap_counts() -> None:
    watch = SilenceWatch(2.0, 10.0)
    watch.began(0.0)
    watch.spoke = True
    assert watch.look(1.0) is None
    assert watch.look(10.9) is None
    assert watch.look(11.0) is Silence.GAP


def test_a_token_between_two_looks_ends_the_wait_even_when_it_came_at_the_last_moment() -> None:
    watch = SilenceWatch(2.0, 10.0)
    watch.began(0.0)
    watch.spoke = True
    assert watch.look(2.5) is None


def test_without_limits_an_engine_may_be_silent_for_ever() -> None:
    watch = SilenceWatch(0.0, 0.0)
    watch.began(0.0)
    assert watch.look(1e9) is None
    watch.spoke = True
    assert watch.look(1e9 + 1) is None
    assert watch.look(2e9) is None


def test_a_second_call_is_waited_for_anew() -> None:
    watch = SilenceWatch(2.0, 10.0)
    watch.began(0.0)
    watch.spoke = True
    watch.look(1.0)
    watch.began(50.0)
    assert watch.look(51.9) is None
    assert watch.look(52.0) is Silence.FIRST_TOKEN
