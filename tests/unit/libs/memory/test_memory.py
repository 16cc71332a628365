"""How full the memory is, and what follows."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from streamway.memory import Floor, Memory, MemoryWatch, Watermark, Yielding, read_levels, read_memory
from streamway.memory.trend import Trend

MACHINE = "MemTotal:       1000 kB\nMemFree: 10 kB\nMemAvailable:    400 kB\n"


def put(root: Path, **files: str) -> None:
    for name, content in files.items():
        path = root / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def test_without_a_cgroup_the_machine_counts(tmp_path: Path) -> None:
    put(tmp_path, proc__meminfo=MACHINE)
    assert read_memory(tmp_path) == Memory(600 * 1024, 1000 * 1024)


def test_the_fullest_level_of_version_2_counts_without_what_can_be_dropped(tmp_path: Path) -> None:
    put(tmp_path, proc__meminfo=MACHINE, proc__self__cgroup="0::/a/b\n")
    put(tmp_path, sys__fs__cgroup__a__b__memory_DOT_current="5000", sys__fs__cgroup__a__b__memory_DOT_max="max\n")
    put(tmp_path, sys__fs__cgroup__a__memory_DOT_current="9500", sys__fs__cgroup__a__memory_DOT_max="10000\n")
    put(tmp_path, sys__fs__cgroup__a__memory_DOT_stat="anon 1\ninactive_file 500\n")
    assert read_memory(tmp_path) == Memory(9000, 10_000)


def test_version_1_is_read_too_and_its_word_for_no_limit_is_known(tmp_path: Path) -> None:
    group = "sys__fs__cgroup__memory__x__memory_DOT_"
    put(tmp_path, proc__meminfo=MACHINE, proc__self__cgroup="4:cpu:/x\n3:memory:/x\n")
    put(tmp_path, **{f"{group}usage_in_bytes": "700", f"{group}limit_in_bytes": "1000"})
    assert read_memory(tmp_path) == Memory(700, 1000)
    put(tmp_path, **{f"{group}limit_in_bytes": str((1 << 63) - 4096)})
    assert read_memory(tmp_path).limit == 1000 * 1024


def test_what_cannot_be_read_is_no_pressure(tmp_path: Path) -> None:
    put(tmp_path, proc__meminfo="nonsense", proc__self__cgroup="0")
    assert read_memory(tmp_path) == Memory(0, 0)
    assert not Watermark(0.85).look(0, 0)


def test_the_mark_is_left_a_little_below_where_it_was_reached() -> None:
    mark = Watermark(0.85)
    assert not mark.look(849, 1000)
    assert mark.look(850, 1000)
    assert not mark.look(830, 1000)
    assert mark.pressed
    assert mark.look(819, 1000)
    assert not mark.pressed


def test_a_mark_of_one_is_never_reached() -> None:
    assert not Watermark(1.0).look(2000, 1000)


def test_the_watch_tells_the_share() -> None:
    registry = CollectorRegistry()
    readings = [Memory(10, 100), Memory(90, 100)]
    watch = MemoryWatch(0.85, registry, lambda: readings.pop(0))
    assert not watch.pressed
    watch.look()
    assert watch.pressed
    assert registry.get_sample_value("streamway_memory_used_ratio") == 0.9


def test_a_floor_is_a_number_of_bytes_and_on_a_small_machine_a_share() -> None:
    floor = Floor(1_200_000_000, 0.15)
    assert floor.of(Memory(0, 64 * 10**9)) == 1_200_000_000
    assert floor.of(Memory(0, 2 * 10**9)) == 300_000_000
    assert floor.of(Memory(0, 0)) == 0
    assert Floor(1_200_000_000).of(Memory(0, 2 * 10**9)) == 1_200_000_000


def test_too_little_is_left_where_any_level_has_less_than_its_floor() -> None:
    floor = Floor(1_200_000_000, 0.15)
    roomy = Memory(10 * 10**9, 64 * 10**9)
    assert not floor.short([roomy, Memory(1_700_000_000, 2 * 10**9)])
    assert floor.short([roomy, Memory(1_700_000_001, 2 * 10**9)])
    # The level that is fullest by its share need not be the one with the least left.
    assert floor.short([Memory(62_900_000_000, 64 * 10**9), Memory(1_500_000_000, 2 * 10**9)])
    assert not floor.short([Memory(0, 0)])
    assert not Floor(0).short([Memory(64, 64)])


def test_every_level_is_read(tmp_path: Path) -> None:
    put(tmp_path, proc__meminfo=MACHINE, proc__self__cgroup="0::/a\n")
    put(tmp_path, sys__fs__cgroup__a__memory_DOT_current="500", sys__fs__cgroup__a__memory_DOT_max="10000\n")
    assert read_levels(tmp_path) == [Memory(500, 10_000), Memory(600 * 1024, 1000 * 1024)]


def test_a_line_through_the_readings_says_when_the_memory_is_full() -> None:
    trend = Trend()
    for step in range(37):
        # 1 MB/s, and noise that has no slope.
        trend.add(1e6 + 5 * step, 500_000_000 + 5_000_000 * step + (step % 2) * 1_000_000)
    left_s = trend.seconds_to(1_000_000_000)
    assert left_s == pytest.approx(320, rel=0.02)


def test_what_does_not_rise_or_is_known_too_briefly_is_never_full() -> None:
    falling, brief = Trend(), Trend()
    for step in range(30):
        falling.add(5.0 * step, 900 - step)
    for step in range(12):
        brief.add(5.0 * step, 100 + 10 * step)
    assert falling.seconds_to(1000) is None
    assert brief.seconds_to(1000) is None
    assert Trend().seconds_to(1000) is None
    assert falling.seconds_to(0) is None


def test_readings_older_than_fifteen_minutes_do_not_count() -> None:
    trend = Trend()
    for step in range(100):
        trend.add(5.0 * step, 10 * step)
    for step in range(100, 300):
        trend.add(5.0 * step, 1000)
    assert trend.seconds_to(2000) is None


def test_what_is_over_the_limit_is_full_now() -> None:
    trend = Trend()
    for step in range(20):
        trend.add(5.0 * step, 100 * step)
    assert trend.seconds_to(500) == 0


def test_the_watch_tells_that_the_memory_will_be_full_soon_and_its_followers_after_each_look() -> None:
    registry = CollectorRegistry()
    used = (Memory(100 + step, 200) for step in count())
    times = (5.0 * step for step in count())
    watch = MemoryWatch(1.0, registry, lambda: next(used), lambda: next(times))
    heard: list[bool] = []
    watch.follow(lambda: heard.append(watch.soon))
    assert registry.get_sample_value("streamway_memory_full_in_seconds") == float("inf")
    for _ in range(12):
        watch.look()
    assert heard == [False] * 11 + [True]
    assert registry.get_sample_value("streamway_memory_full_in_seconds") == pytest.approx(5 * (100 - 12))


def test_a_cache_gives_way_step_by_step_and_gets_its_room_back() -> None:
    room = Yielding(1000)
    assert [room.look(True) for _ in range(3)] == [900, 810, 729]
    for _ in range(50):
        least = room.look(True)
    assert least == 250
    for _ in range(50):
        most = room.look(False)
    assert most == room.bytes == 1000
