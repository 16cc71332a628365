from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.inference_adapter.core.urgency import LOWEST, slots_ahead, slots_kept, threshold, urgent_slots


def test_while_there_is_room_everything_is_urgent() -> None:
    assert threshold({}, 10) == LOWEST
    assert threshold({0: 8}, 10) == LOWEST


def test_it_moves_up_to_where_four_fifths_of_the_slots_are_filled() -> None:
    assert threshold({0: 9}, 10) == 1
    assert threshold({64: 5, 0: 20}, 10) == 1
    assert threshold({127: 9, 0: 20}, 10) == 128


def test_slots_are_kept_for_urgent_work_that_is_there_and_for_nobody_else() -> None:
    assert slots_kept(2, [100, 0], 51) == 2
    assert slots_kept(2, [50, 0], 51) == 0, "what is urgent does not come"
    assert slots_kept(2, [100, 0], LOWEST) == 0, "there is room for all"
    assert slots_kept(2, [-10], -50) == 0, "bulk is never urgent"
    assert [slots_ahead(slots) for slots in (1, 7, 8, 16, 256)] == [0, 0, 1, 2, 2]


@given(st.dictionaries(st.integers(-128, 127), st.integers(1, 50), max_size=20), st.integers(1, 100))
def test_urgent_work_never_fills_more_than_its_share_and_as_much_as_it_can(tasks: dict[int, int], slots: int) -> None:
    limit = threshold(tasks, slots)
    urgent = sum(count for priority, count in tasks.items() if priority >= limit)
    assert urgent <= urgent_slots(slots)
    below = [priority for priority in tasks if priority < limit]
    if below:
        assert urgent + tasks[max(below)] > urgent_slots(slots)
