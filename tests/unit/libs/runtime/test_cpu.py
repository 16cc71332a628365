"""How much of its CPU a process uses."""

from __future__ import annotations

import os
import time
from pathlib import Path

from streamway.runtime.cpu import CpuMeter, cpu_quota

CORES = len(os.sched_getaffinity(0))


def put(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def test_without_a_cgroup_the_quota_is_every_core(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) == CORES


def test_the_tightest_level_of_either_version_counts(tmp_path: Path) -> None:
    put(tmp_path / "proc/self/cgroup", "0::/a/b\n")
    put(tmp_path / "sys/fs/cgroup/a/b/cpu.max", "max 100000\n")
    put(tmp_path / "sys/fs/cgroup/a/cpu.max", "25000 100000\n")
    assert cpu_quota(tmp_path) == 0.25
    put(tmp_path / "proc/self/cgroup", "3:cpu,cpuacct:/x\n")
    put(tmp_path / "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "50000\n")
    put(tmp_path / "sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n")
    assert cpu_quota(tmp_path) == 0.5


def test_no_limit_and_nonsense_are_none(tmp_path: Path) -> None:
    put(tmp_path / "proc/self/cgroup", "0::/a\n1:cpu:/a\n")
    for content in ("max 100000", "", "x y z", "0 0", "-1 100000"):
        put(tmp_path / "sys/fs/cgroup/a/cpu.max", content)
        put(tmp_path / "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1")
        put(tmp_path / "sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000")
        assert cpu_quota(tmp_path) == CORES


def test_the_share_is_of_the_time_since_the_last_look() -> None:
    meter = CpuMeter(quota=64.0)
    time.sleep(0.2)
    idle = meter.share()
    begun = time.thread_time()
    while time.thread_time() - begun < 0.1:
        pass
    # One thread that works fills its core, whatever the quota; how much of a core it gets here is the machine's.
    assert 0 <= idle < meter.share() <= 1.1
