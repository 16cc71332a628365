"""What is measured: meshes of several sizes, streams up to saturation, tasks that are held, connections over time."""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.accounting import memory_bytes
from benchmarks.run import Mesh, token_path

_WARM_UP_STREAMS: Final = 50


def _warm(mesh: Mesh) -> None:
    """Imports, pools and buffers are there before anything counts."""
    mesh.measure(("sse", _WARM_UP_STREAMS, "relaxed"), 10, 1)


def sizes(meshes: Sequence[tuple[int, int]], streams: int, rounds: int) -> list[dict[str, Any]]:
    """CPU a token and first tokens of meshes of so many workers and edges, with the same load, in turn."""
    rows: dict[tuple[int, int], list[dict[str, Any]]] = {size: [] for size in meshes}
    for turn in range(rounds):
        for workers, edges in meshes:
            arguments = ("--workers", str(workers), "--edges", str(edges))
            with tempfile.TemporaryDirectory() as folder, Mesh(Path(folder), 20, streams, arguments=arguments) as mesh:
                _warm(mesh)
                sample = mesh.measure(("sse", streams, "relaxed"), 100, 1)
            load = sample["load"]
            row = {
                "path_us": token_path(sample),
                "all_us": sum(sample["us_per_token"].values()),
                "ttft_p95_ms": load["ttft_ms"].get("p95", 0.0),
                "tokens_per_s": load["tokens_per_s"],
                "memory_mb": sum(sample["memory_mb"].values()),
                "errors": sum(load["errors"].values()),
            }
            rows[workers, edges].append(row)
            print(f"round {turn + 1}/{rounds}, {workers} workers, {edges} edges: {row}", flush=True)
    return [
        {
            "workers": workers,
            "edges": edges,
            **{name: statistics.median(sample[name] for sample in samples) for name in samples[0]},
        }
        for (workers, edges), samples in rows.items()
    ]


def rates(streams: Sequence[int], tokens: int, rounds: int) -> list[tuple[int, float]]:
    """(streams, tokens/s that one of them gets while all run) from an engine that would give each 200."""
    found: dict[int, list[float]] = {count: [] for count in streams}
    with tempfile.TemporaryDirectory() as folder, Mesh(Path(folder), 200, max(streams)) as mesh:
        _warm(mesh)
        for turn in range(rounds):
            for count in streams:
                load = _load(mesh, "sse", count, tokens, ramp_s=1.0, limit_s=240)
                rate = load["held_tokens_per_s"] / count
                found[count].append(rate)
                print(f"round {turn + 1}/{rounds}, {count} streams: {rate:.1f} tokens/s each", flush=True)
    return [(count, statistics.median(values)) for count, values in found.items()]


def held(counts: Sequence[int], rate: float, hold_s: float) -> list[tuple[int, float]]:
    """(tasks, bytes of all of our processes more than before), each count at a fresh mesh: all on one WebSocket, at `rate`."""
    return [(count, max(more for _, more in _over_time("one_websocket", count, rate, hold_s))) for count in counts]


def over_time(rates_: Sequence[float], count: int, seconds: float) -> list[tuple[float, float, float]]:
    """(tokens/s, seconds since the last of `count` connections was opened, bytes more of each of them)."""
    points = []
    for rate in rates_:
        points += [(rate, at, more / count) for at, more in _over_time("websocket", count, rate, seconds)]
    return points


def _over_time(surface: str, count: int, rate: float, seconds: float) -> list[tuple[float, float]]:
    ramp_s = max(1.0, count / 300)
    with tempfile.TemporaryDirectory() as folder, Mesh(Path(folder), rate, count) as mesh:
        _warm(mesh)
        pids = [pid for name, pid in mesh.pids.items() if name != "valkey"]
        before = sum(map(memory_bytes, pids))
        tokens = max(1, int((seconds + ramp_s) * rate))
        command = mesh.load(surface, count, tokens, "--ramp-s", ramp_s, "--limit-s", 2 * seconds + ramp_s + 60)
        with subprocess.Popen(command, stdout=subprocess.PIPE) as load:
            time.sleep(ramp_s)
            began = time.monotonic()
            found: list[tuple[float, float]] = []
            while not found or (load.poll() is None and time.monotonic() - began < seconds):
                found.append((time.monotonic() - began, float(sum(map(memory_bytes, pids)) - before)))
                time.sleep(1.0)
            assert load.stdout is not None
            figures = json.loads(load.stdout.read())
    print(
        f"{surface}, {count} at {rate:g} tokens/s: {found[-1][1] / count / 1000:.1f} KB each, errors {figures['errors'] or 0}"
    )
    return found


def _load(mesh: Mesh, surface: str, count: int, tokens: int, *, ramp_s: float, limit_s: float) -> dict[str, Any]:
    command = mesh.load(surface, count, tokens, "--ramp-s", ramp_s, "--limit-s", limit_s)
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures
