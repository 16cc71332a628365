from __future__ import annotations

from services.inference_adapter.core.preload import PreloadDepth


def test_it_deepens_when_the_window_ran_dry_while_the_lanes_had_work() -> None:
    depth = PreloadDepth(4, most=30)
    for expected in (8, 16, 30, 30):
        depth.waited(0)
        depth.took(7, room=7, idle_slots=3)
        assert depth.settle() == expected


def test_idle_slots_after_a_rest_are_no_reason() -> None:
    depth = PreloadDepth(4)
    depth.took(12, room=12, idle_slots=8)
    depth.waited(3)
    assert depth.settle() == 4


def test_one_task_after_the_other_on_a_quiet_day_is_no_reason() -> None:
    depth = PreloadDepth(4)
    for _ in range(9):
        depth.took(1, room=5, idle_slots=1)
        depth.waited(0)
        assert depth.settle() == 4


def test_it_shrinks_by_one_when_half_would_have_done_for_a_while_and_never_below_its_start() -> None:
    depth = PreloadDepth(4)
    depth.waited(0)
    depth.took(5, room=5, idle_slots=1)
    assert depth.settle() == 8
    for _ in range(10):
        depth.waited(5)
        depth.settle()
    assert depth.value == 7
    for _ in range(200):
        depth.waited(7)
        depth.settle()
    assert depth.value == 4
