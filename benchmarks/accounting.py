"""CPU and memory of processes, from the kernel's own books (/proc)."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
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


def measured(program: str) -> dict[str, Any]:
    """What a report begins with: when, by which command, on what machine. `program` is the module that was started."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join([f"python -m {program}", *sys.argv[1:]]),
        "machine": machine(),
    }


def machine() -> dict[str, Any]:
    """What a report says of where it was made: cores, processor, memory, kernel, Python, and the commit that was measured."""
    return {
        "cpus": os.cpu_count(),
        "processor": _processor(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "commit": commit(),
    }


def commit() -> str:
    """The commit of this checkout, with a + where something is changed beside it; "unknown" outside of one."""
    try:
        told = [
            subprocess.run(
                ["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
            ).stdout
            for words in (("rev-parse", "--short=12", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        ]
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return told[0].strip() + ("+" if told[1].strip() else "")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
