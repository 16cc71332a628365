"""Runs the whole mesh behind load and writes a table: CPU a token for each process, first-token time, memory.

    python -m benchmarks.run --streams 100 1000 --surfaces sse websocket grpc --repeats 3

The engine is the simulated one as an HTTP server, the mesh is what `streamway up` starts for everybody. Every process is
measured whole, from the kernel's accounting; the load generator is measured too and left out of the sum. Rounds are
interleaved, and medians are printed with their spread, since machines are noisy.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.accounting import cpu_seconds, measured, memory_bytes
from benchmarks.report import markdown, plot
from tests.support.ports import free_port

RESULTS = Path(__file__).parent / "results"
TOKEN_PATH = ("edge", "adapter")
# Surface, number of streams, durability.
Case = tuple[str, int, str]


def main() -> None:
    """Parses the command line, measures, writes `results/NAME.json`, `.md` and `.png`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--streams", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--surfaces", nargs="+", default=["sse", "websocket", "grpc"])
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--tokens-per-s", type=float, default=20.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--durability", nargs="+", choices=["off", "relaxed", "strict"], default=["off", "relaxed"])
    parser.add_argument("--name", default="first")
    options = parser.parse_args()
    # Durabilities next to each other: they are a pair, whatever else the machine does.
    cases = [
        (surface, streams, durability)
        for streams in options.streams
        for surface in options.surfaces
        for durability in options.durability
    ]
    samples: dict[Case, list[dict[str, Any]]] = {case: [] for case in cases}
    with (
        tempfile.TemporaryDirectory() as folder,
        Mesh(Path(folder), options.tokens_per_s, max(options.streams)) as mesh,
    ):
        for repeat in range(options.repeats):
            for case in cases:
                sample = mesh.measure(case, options.tokens, options.rounds)
                samples[case].append(sample)
                print(f"round {repeat + 1}/{options.repeats}  {_line(case, sample)}", flush=True)
    report = {
        **measured("benchmarks.run"),
        "tokens_per_s_of_a_stream": options.tokens_per_s,
        "cases": [_case(case, rows) for case, rows in samples.items()],
        "journal": _journal(samples),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{options.name}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    table = markdown(report)
    (RESULTS / f"{options.name}.md").write_text(table, encoding="utf-8")
    plot(report, RESULTS / f"{options.name}.png")
    print("\n" + table)


class Mesh:
    """The simulated engine and a mesh in front of it, as processes."""

    def __init__(
        self,
        folder: Path,
        tokens_per_s: float,
        streams: int,
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self._folder = folder
        self._arguments = arguments
        self._environment = environment or {}
        self._tokens_per_s = tokens_per_s
        self._streams = streams
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ready: dict[str, Any] = {}

    def __enter__(self) -> Mesh:
        engine_port = free_port()
        # fmt: off
        self._start("-m", "benchmarks.simulated_engine", "--port", str(engine_port),
                    "--tokens-per-s", str(self._tokens_per_s), "--slots", str(2 * self._streams),
                    "--kv-tokens", "100000000")
        ready_file = self._folder / "ready.json"
        self._start("-m", "services.supervisor", "up", "--engine", f"http://127.0.0.1:{engine_port}", "--port", "0",
                    "--data-dir", str(self._folder / "data"), "--ready-file", str(ready_file), *self._arguments,
                    environment={"STREAMWAY_ADAPTER_SLOTS": str(2 * self._streams), "STREAMWAY_LOG_LEVEL": "warning",
                                 **self._environment})
        # fmt: on
        until = time.monotonic() + 180
        while not ready_file.exists():
            if time.monotonic() > until or any(process.poll() is not None for process in self._processes):
                self.__exit__()
                raise SystemExit("the mesh did not come up; its log is above")
            time.sleep(0.1)
        self._ready = json.loads(ready_file.read_text(encoding="utf-8"))
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()

    @property
    def pids(self) -> dict[str, int]:
        """The processes of the mesh, by name; the engine is none of them."""
        return {row["name"]: row["pid"] for row in self._ready["processes"]}

    @property
    def operations(self) -> list[str]:
        """Where its processes show health and metrics, each "host:port"."""
        return [row["operations"] for row in self._ready["processes"] if "operations" in row]

    def target(self, surface: str) -> str:
        """What `benchmarks.load` is told for a surface."""
        if surface != "grpc":
            return str(self._ready["edge"]["url"])
        return next(str(row["address"]) for row in self._ready["processes"] if row["name"] == "router-0")

    def load(self, surface: str, streams: int, tokens: int, *more: object) -> list[str]:
        """The command of a load on this mesh; `more` are further words of `benchmarks.load`."""
        words = (
            "--surface",
            surface,
            "--target",
            self.target(surface),
            "--streams",
            streams,
            "--tokens",
            tokens,
            *more,
        )
        return [sys.executable, "-m", "benchmarks.load", *map(str, words)]

    def measure(self, case: Case, tokens: int, rounds: int) -> dict[str, Any]:
        """One load run: figures of the client, CPU a token and peak memory of each process of the mesh."""
        surface, streams, durability = case
        pids = self.pids
        before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        how = ("--rounds", rounds, "--durability", durability, "--ramp-s", tokens / self._tokens_per_s)
        load = subprocess.Popen(self.load(surface, streams, tokens, *how), stdout=subprocess.PIPE)
        peak = dict.fromkeys(pids, 0)
        while load.poll() is None:
            for name, pid in pids.items():
                peak[name] = max(peak[name], memory_bytes(pid))
            time.sleep(0.5)
        assert load.stdout is not None
        figures = json.loads(load.stdout.read())
        made = max(1, figures["tokens"])
        after = {name: cpu_seconds(pid) for name, pid in pids.items()}
        return {
            "load": figures,
            "us_per_token": {name: round((after[name] - before[name]) / made * 1e6, 2) for name in pids},
            "memory_mb": {name: round(peak[name] / 1e6, 1) for name in pids},
        }

    def _start(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self._processes.append(
            subprocess.Popen(
                [sys.executable, *arguments], env={**os.environ, **(environment or {})}, stdout=subprocess.DEVNULL
            )
        )


def token_path(sample: dict[str, Any]) -> float:
    """µs of CPU a token of edge and adapter."""
    return float(sum(value for name, value in sample["us_per_token"].items() if name.startswith(TOKEN_PATH)))


def _journal(samples: dict[Case, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """What the journal costs: each round's token path over that of the same round without it."""
    found = []
    for (surface, streams, durability), rows in samples.items():
        off = samples.get((surface, streams, "off"), [])
        if durability != "off" and off:
            ratios = [token_path(row) / max(0.01, token_path(base)) for row, base in zip(rows, off, strict=True)]
            of = {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
            found.append({"surface": surface, "streams": streams, "durability": durability, "ratio": of})
    return found


def _line(case: Case, sample: dict[str, Any]) -> str:
    surface, streams, durability = case
    path = token_path(sample)
    load = sample["load"]
    return (
        f"{surface:9} {streams:5} streams, {durability:7}: {path:6.1f} µs a token on the token path, "
        f"first token p95 {load['ttft_ms'].get('p95', 0):.0f} ms, errors {load['errors'] or 0}"
    )


def _case(case: Case, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over the rounds, with the least and most of the token path beside them."""
    names = list(rows[0]["us_per_token"])
    per_token = {name: statistics.median(row["us_per_token"][name] for row in rows) for name in names}
    paths = [token_path(row) for row in rows]
    loads = [row["load"] for row in rows]
    surface, streams, durability = case
    return {
        "surface": surface,
        "streams": streams,
        "durability": durability,
        "us_per_token": per_token,
        "token_path_us": {"median": statistics.median(paths), "min": min(paths), "max": max(paths)},
        "memory_mb": {name: max(row["memory_mb"][name] for row in rows) for name in names},
        "ttft_ms": {q: statistics.median(load["ttft_ms"].get(q, 0) for load in loads) for q in ("p50", "p95", "p99")},
        "itl_ms": {q: statistics.median(load["itl_ms"].get(q, 0) for load in loads) for q in ("p50", "p95", "p99")},
        "tokens_per_s": statistics.median(load["tokens_per_s"] for load in loads),
        "frames_per_token": round(
            sum(load["frames"] for load in loads) / max(1, sum(load["tokens"] for load in loads)), 3
        ),
        "errors": sum(sum(load["errors"].values()) for load in loads),
    }


if __name__ == "__main__":
    main()
