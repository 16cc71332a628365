"""What a tenant loses by a neighbour: alone, beside another in the same edge and worker, beside another in processes of its own.

    python -m benchmarks.neighbours --rounds 3
    python -m benchmarks.neighbours --caches

A tenant's own load is the same in each arm, and the neighbour's is as large. CPU is that of the processes that serve the tenant,
for each token that they made, whosever it is; the gap between two tokens is the tenant's own. The arms take turns. `--caches`
counts misses of the processor's caches instead, by hardware counters or cachegrind. The goal is a loss of at most a tenth.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.accounting import cpu_seconds, measured
from benchmarks.neighbours import caches
from benchmarks.run import TOKEN_PATH, Mesh

_RESULTS: Final = Path(__file__).parent.parent / "results"
_ARMS: Final = ("alone", "one process", "two processes")
_RATE: Final = 20.0
_TOKENS: Final = 200
_GOAL: Final = 1.10


@contextlib.contextmanager
def _mesh(streams: int) -> Iterator[Mesh]:
    with tempfile.TemporaryDirectory() as folder, Mesh(Path(folder), _RATE, 2 * streams) as mesh:
        mesh.measure(("websocket", 50, "relaxed"), 10, 1)
        yield mesh


def _start(mesh: Mesh, streams: int) -> subprocess.Popen[bytes]:
    command = mesh.load("websocket", streams, _TOKENS, "--ramp-s", 3, "--limit-s", 180)
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def arm(name: str, streams: int) -> dict[str, Any]:
    """One sample. Misses are those of the tenant's edge and worker in ten seconds, where they can be counted."""
    with contextlib.ExitStack() as stack:
        mine = stack.enter_context(_mesh(streams))
        other = stack.enter_context(_mesh(streams)) if name == "two processes" else mine
        path = [pid for process, pid in mine.pids.items() if process.startswith(TOKEN_PATH)]
        before = sum(map(cpu_seconds, path))
        loads = [_start(mine, streams)]
        if name != "alone":
            loads.append(_start(other, streams))
        time.sleep(4.0)
        missed = caches.hardware(path, 5.0)
        found = [json.loads(load.communicate()[0]) for load in loads]
        spent = sum(map(cpu_seconds, path)) - before
    served = found if name == "one process" else found[:1]
    return {
        "us": spent / max(1, sum(one["tokens"] for one in served)) * 1e6,
        "gap_p99_ms": found[0]["itl_ms"].get("p99", 0.0),
        "ttft_p95_ms": found[0]["ttft_ms"].get("p95", 0.0),
        "errors": sum(sum(one["errors"].values()) for one in found),
        "hardware": missed,
    }


def of_caches(streams: Sequence[int]) -> list[str]:
    """A table of what cachegrind says of one token."""
    lines = [
        "| streams of a tenant | tenants in the process | instructions | D1 misses | LL misses |",
        "|---|---|---|---|---|",
    ]
    for count in streams:
        for tenants in (1, 2):
            found = caches.simulated(tenants, count)
            if not found:
                raise SystemExit("neither hardware counters nor valgrind are here; on Debian: apt-get install valgrind")
            lines.append(
                f"| {count} | {tenants} | {found['I refs']:,.0f} | {found['D1 misses']:,.0f} | {found['LL misses']:.1f} |"
            )
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Parses the command line, measures, prints, writes."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.neighbours",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--streams", type=int, default=200, help="of each tenant")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--caches", action="store_true", help="count cache misses of the loops instead")
    parser.add_argument("--name", default="neighbours", help="of the files below benchmarks/results")
    options = parser.parse_args()
    report = measured("benchmarks.neighbours")
    if options.caches:
        lines = of_caches((options.streams // 4, options.streams))
    else:
        samples: dict[str, list[dict[str, Any]]] = {name: [] for name in _ARMS}
        for turn in range(options.rounds):
            for name in _ARMS:
                samples[name].append(arm(name, options.streams))
                print(f"round {turn + 1}/{options.rounds}, {name}: {samples[name][-1]}", flush=True)
        report["samples"] = samples
        lines = _table(samples, options.streams)
    text = [f"Measured {report['when'][:10]}: `{report['command']}`, on {report['machine']}.", "", *lines]
    _RESULTS.mkdir(exist_ok=True)
    (_RESULTS / f"{options.name}.json").write_text(
        json.dumps({**report, "text": text}, indent=1) + "\n", encoding="utf-8"
    )
    print("\n".join(["", *text]))


def _table(samples: dict[str, list[dict[str, Any]]], streams: int) -> list[str]:
    """Medians, and each round's ratio to its own "alone"."""
    lines = [
        f"{streams} streams of 20 tokens/s on WebSockets, a neighbour with as many:",
        "",
        "| tenant | path µs a token | gap p99 ms | first token p95 ms | µs to alone | gap to alone | errors |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, rows in samples.items():
        ratios = {
            key: [row[key] / max(0.01, base[key]) for row, base in zip(rows, samples["alone"], strict=True)]
            for key in ("us", "gap_p99_ms")
        }
        told = [f"{statistics.median(v):.2f} [{min(v):.2f}–{max(v):.2f}]" for v in ratios.values()]
        medians = [statistics.median(row[key] for row in rows) for key in ("us", "gap_p99_ms", "ttft_p95_ms")]
        errors = sum(row["errors"] for row in rows)
        lines.append(
            f"| {name} | {medians[0]:.1f} | {medians[1]:.0f} | {medians[2]:.0f} | {told[0]} | {told[1]} | {errors} |"
        )
        if name != "alone":
            worst = max(statistics.median(v) for v in ratios.values())
            print(f"{name}: a loss of {worst - 1:+.0%}: {'within' if worst <= _GOAL else 'MORE than'} a tenth")
    return lines


if __name__ == "__main__":
    main()
