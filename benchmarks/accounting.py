"""CPU and memory of processes, from the kernel's own books (/proc)."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its threads so far; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def busy_seconds() -> float:
    """Time that all cores together have worked so far, for whomever; what a hypervisor gave to others counts too."""
    fields = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0].split()[1:9]
    return (sum(map(int, fields)) - int(fields[3]) - int(fields[4])) * _TICK_S


def memory_bytes(pid: int) -> int:
    """Proportional set size: shared pages are divided among who shares them; 0 when the process is gone."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def machine() -> dict[str, Any]:
    """What a report says of where it was made: cores, processor, Python."""
    return {"cpus": os.cpu_count(), "processor": _processor(), "python": platform.python_version()}


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
