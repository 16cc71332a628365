"""Pauses between tries."""

from __future__ import annotations

from streamway.runtime.pauses import Pauses


async def test_each_pause_is_twice_the_one_before_up_to_the_longest_and_short_again_after_a_success() -> None:
    pauses, seen = Pauses(0.001, 0.005), []
    for _ in range(4):
        seen.append(pauses.next_s)
        await pauses.wait()
    assert seen == [0.001, 0.002, 0.004, 0.005]
    pauses.went_well()
    assert pauses.next_s == 0.001
