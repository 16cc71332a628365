"""Which allocator leaves least behind: glibc's, jemalloc and mimalloc by preload, under the same churn.

    python -m benchmarks.allocators                    an hour of churn each
    python -m benchmarks.allocators --seconds 120 --rounds 2

Answers of all lengths over all surfaces come and go, with prompts of 80 bytes to 64 KB, some of them cut off. What is alive in
the end is the same in each arm: what a mesh has at rest, and what its bounded memories keep. So of the memory that is left then,
above that of the same mesh before, the difference between two arms lies outside of live objects and is the allocators' alone. CPU
is that of edge and worker for each token. What is not installed is left out, and named (Debian: libjemalloc2, libmimalloc2.0).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.accounting import cpu_seconds, measured, memory_bytes
from benchmarks.run import TOKEN_PATH, Mesh

_RESULTS: Final = Path(__file__).parent / "results"
_FOLDERS: Final = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib")
_RATE: Final = 100.0
_REST_S: Final = 12.0
_PROMPTS_BYTES: Final = 1_000_000
# Name of the arm to the library that is preloaded, "" none, and the environment beside it.
_ARMS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "glibc": ("", {}),
    "glibc, 2 arenas": ("", {"MALLOC_ARENA_MAX": "2"}),
    "jemalloc": ("libjemalloc.so.2", {}),
    "jemalloc, background thread": (
        "libjemalloc.so.2",
        {"MALLOC_CONF": "background_thread:true,dirty_decay_ms:5000,muzzy_decay_ms:5000"},
    ),
    "mimalloc": ("libmimalloc.so.2", {}),
}


def library(name: str) -> Path | None:
    """Where it is; the newest of several versions."""
    found = [path for folder in _FOLDERS for path in sorted(Path(folder).glob(f"{name}*"))]
    return found[-1] if found else None


def environment(arm: str) -> dict[str, str] | None:
    """What the processes of a mesh are started with; None: the library is not here."""
    name, variables = _ARMS[arm]
    if not name:
        return dict(variables)
    path = library(name)
    return None if path is None else {**variables, "LD_PRELOAD": str(path)}


def loads(seed: int) -> Iterator[list[str]]:
    """Options of `benchmarks.load`, one after another without end; the same for the same seed."""
    draw = random.Random(seed)
    while True:
        surface = draw.choice(("sse", "sse", "websocket", "rest"))
        streams = draw.choice((10, 40, 120))
        options = {
            "surface": surface,
            "streams": streams,
            "tokens": draw.choice((5, 40, 200)),
            "rounds": draw.choice((1, 3)),
            # All prompts fit into the engine's KV at once, so that no load waits for it.
            "prompt-bytes": draw.choice(
                [size for size in (80, 2_000, 16_000, 64_000) if size * streams <= _PROMPTS_BYTES]
            ),
            "ramp-s": 0.5,
            "limit-s": 60,
        }
        if surface == "sse" and draw.random() < 0.3:
            options["cut-at"] = 3
        yield [part for name, value in options.items() for part in (f"--{name}", str(value))]


def sample(arm: str, seconds: float, seed: int) -> dict[str, Any]:
    """Churn for so long on a mesh of its own. MB by process; the most, and what is left after a rest, above that before."""
    chosen = environment(arm)
    assert chosen is not None
    with tempfile.TemporaryDirectory() as folder, Mesh(Path(folder), _RATE, 200, chosen) as mesh:
        ours = {name: pid for name, pid in mesh.pids.items() if name != "valkey"}
        _one(mesh, ["--surface", "sse", "--streams", "20", "--tokens", "10"])
        time.sleep(_REST_S)
        before = {name: memory_bytes(pid) for name, pid in ours.items()}
        path = [pid for name, pid in ours.items() if name.startswith(TOKEN_PATH)]
        cpu, tokens, peak = sum(map(cpu_seconds, path)), 0, dict(before)
        errors: Counter[str] = Counter()
        until = time.monotonic() + seconds
        for options in loads(seed):
            figures = _one(mesh, options)
            tokens += figures["tokens"]
            errors.update(figures["errors"])
            peak = {name: max(peak[name], memory_bytes(pid)) for name, pid in ours.items()}
            if time.monotonic() > until:
                break
        spent = sum(map(cpu_seconds, path)) - cpu
        time.sleep(_REST_S)
        left = {name: memory_bytes(pid) - before[name] for name, pid in ours.items()}
    return {
        "arm": arm,
        "before_mb": _mb(before),
        "peak_mb": _mb(peak),
        "left_mb": _mb(left),
        "us": spent / max(1, tokens) * 1e6,
        "tokens": tokens,
        "errors": dict(errors),
    }


def _mb(values: dict[str, int]) -> dict[str, float]:
    return {name: round(value / 1e6, 1) for name, value in values.items()}


def _one(mesh: Mesh, options: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.load", "--target", mesh.target("sse"), *options]
    figures: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return figures


def table(samples: list[dict[str, Any]]) -> list[str]:
    """Medians of the rounds, sums of all processes."""
    lines = ["| allocator | MB before | MB at most | MB left | µs a token | tokens | errors |", "|---" * 7 + "|"]
    for arm in dict.fromkeys(row["arm"] for row in samples):
        rows = [row for row in samples if row["arm"] == arm]
        megabytes = [
            statistics.median(sum(row[key].values()) for row in rows) for key in ("before_mb", "peak_mb", "left_mb")
        ]
        lines.append(
            f"| {arm} | {' | '.join(f'{value:.0f}' for value in megabytes)} | {statistics.median(row['us'] for row in rows):.0f}"
            f" | {sum(row['tokens'] for row in rows):,} | {sum(sum(row['errors'].values()) for row in rows)} |"
        )
    return lines


def main() -> None:
    """Parses the command line, measures, prints, writes."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.allocators",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=3600.0, help="of churn, in each arm and round")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--arms", nargs="+", choices=list(_ARMS), default=list(_ARMS))
    parser.add_argument("--name", default="allocators", help="of the file below benchmarks/results")
    options = parser.parse_args()
    arms = [arm for arm in options.arms if environment(arm) is not None]
    for arm in options.arms:
        if arm not in arms:
            print(f"{arm} is left out, since {_ARMS[arm][0]} is not installed", file=sys.stderr)
    samples = []
    for turn in range(options.rounds):
        for arm in arms:
            samples.append({"round": turn + 1, **sample(arm, options.seconds, turn)})
            print(f"round {turn + 1}/{options.rounds}: {samples[-1]}", flush=True)
    lines = table(samples)
    report = {
        **measured("benchmarks.allocators"),
        "left_out": [arm for arm in options.arms if arm not in arms],
        "samples": samples,
        "table": lines,
    }
    _RESULTS.mkdir(exist_ok=True)
    (_RESULTS / f"{options.name}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print("\n".join(["", *lines]))


if __name__ == "__main__":
    main()
