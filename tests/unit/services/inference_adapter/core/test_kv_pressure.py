"""When no prefill may begin since the KV cache is full."""

from __future__ import annotations

import pytest

from services.inference_adapter.core.kv_pressure import KVPressure


def test_it_is_pressed_after_ten_seconds_above_the_mark_and_released_well_below_it() -> None:
    pressure = KVPressure(0.92, 0.87, 10)
    assert not pressure.look(0.95, 100.0)
    assert not pressure.look(0.92, 109.9)
    assert pressure.look(0.93, 110.0)
    assert pressure.pressed
    assert not pressure.look(0.90, 112.0), "a little room is none"
    assert pressure.pressed
    assert pressure.look(0.86, 114.0)
    assert not pressure.pressed
    assert not pressure.look(0.99, 115.0), "ten seconds again"
    assert not pressure.look(0.99, 124.9)
    assert pressure.look(0.99, 125.0)


def test_a_moment_below_the_mark_begins_the_time_again() -> None:
    pressure = KVPressure(0.92, 0.87, 10)
    for now, used in ((0, 0.95), (9, 0.91), (10, 0.95), (19, 0.95)):
        assert not pressure.look(used, now)
    assert pressure.look(0.95, 20)


@pytest.mark.parametrize("used", [None, 0.0])
def test_an_engine_that_does_not_tell_is_not_held_up(used: float | None) -> None:
    pressure = KVPressure(0.92, 0.87, 0)
    assert pressure.look(1.0, 0)
    assert pressure.look(used, 1)
    assert not pressure.pressed


def test_an_engine_that_puts_sequences_aside_is_pressed_at_once() -> None:
    pressure = KVPressure(0.92, 0.87, 10)
    assert not pressure.look(0.9, 0)
    assert pressure.look(0.9, 1, put_aside=1)
    assert pressure.pressed
    assert not pressure.look(0.9, 2)
    assert pressure.pressed
    assert pressure.look(0.5, 3)
    assert not pressure.pressed
    assert not KVPressure(1.0, 0.87, 0).look(1.0, 0, put_aside=5), "never means never"


def test_at_a_mark_of_one_it_is_never_pressed() -> None:
    pressure = KVPressure(1.0, 0.87, 0)
    assert not pressure.look(1.0, 0)
    assert not pressure.look(1.0, 100)
