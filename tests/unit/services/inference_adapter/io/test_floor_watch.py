"""How much memory is left is looked at when it matters, and a floor that nothing could pass stops the start."""

from __future__ import annotations

import pytest

from services.inference_adapter.io.floor_watch import FloorWatch
from services.inference_adapter.settings import AdapterSettings
from streamway.memory import Floor, Memory
from streamway.runtime.start import StartError

SMALL = Memory(500_000_000, 2_000_000_000)


def test_memory_is_read_once_a_second() -> None:
    readings = [Memory(0, 100), Memory(95, 100), Memory(0, 100)]
    watch = FloorWatch(Floor(10), lambda: [readings.pop(0)])
    assert [watch.short(now) for now in (0.0, 0.9, 1.0, 1.5, 2.0)] == [False, False, True, True, False]


def test_the_shipped_floor_starts_on_a_small_machine_and_leaves_it_room() -> None:
    watch = FloorWatch(AdapterSettings(backend="simulated").answer_floor(), lambda: [SMALL])
    watch.check()
    assert not watch.short(0.0)


def test_a_floor_above_all_there_is_stops_the_start() -> None:
    settings = AdapterSettings(backend="simulated", truncate_below_bytes=2_000_000_000)
    with pytest.raises(StartError, match="truncate_below_bytes is 2000000000, and there are 2000000000 bytes"):
        FloorWatch(settings.answer_floor(), lambda: [SMALL]).check()
    FloorWatch(AdapterSettings(backend="simulated", truncate_below_bytes=0).answer_floor(), lambda: [SMALL]).check()


def test_where_memory_can_not_be_read_nothing_is_cut() -> None:
    watch = FloorWatch(Floor(1_200_000_000), lambda: [Memory(0, 0)])
    watch.check()
    assert not watch.short(0.0)
