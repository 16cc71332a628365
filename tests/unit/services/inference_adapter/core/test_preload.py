from __future__ import annotations

from services.inference_adapter.core.preload import PreloadDepth


def test_it_deepens_when_the_window_ran_dry_while_the_lanes_had_work() -> None:
    depth = PreloadDepth(4, most=30)
    for expected in (8, 16, 30, 30):
        depth.starved()
        assert depth.settle() == expected
    assert depth.settle() == 30


def test_it_shrinks_by_one_when_half_would_have_done_for_a_while_and_never_below_its_start() -> None:
    depth = PreloadDepth(4)
    depth.starved()
    assert depth.settle() == 8
    for _ in range(10):
        depth.waited(5)
        depth.settle()
    assert depth.value == 7
    for _ in range(200):
        depth.waited(7)
        depth.settle()
    assert depth.value == 4
