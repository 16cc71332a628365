"""What tracing costs: the same load on meshes that record nothing, one trace in a hundred, and every trace.

    python -m benchmarks.tracing --streams 100 --tokens 100 --repeats 5

All meshes are up the whole time and are measured in turn, so that each round's figures are a set; printed is the median of the
ratios to the same round's mesh with traces off, for the token path (edge and adapter) and for all of its processes. Spans go to a
receiver in this process, which is not measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks.run import RESULTS, Mesh, token_path
from tests.support.otlp_receiver import Receiver

_OFF: Final = "off"
_ARMS: Final = (_OFF, "0", "0.01", "1")


def main() -> None:
    """Parses the command line, measures, prints a table, writes `results/tracing.json`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tracing", description=__doc__)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--tokens-per-s", type=float, default=20.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--surface", default="websocket", choices=["sse", "websocket", "grpc"])
    options = parser.parse_args()
    samples: dict[str, list[dict[str, Any]]] = {arm: [] for arm in _ARMS}
    with contextlib.ExitStack() as stack:
        receiver = stack.enter_context(Receiver())
        meshes = {}
        for arm in _ARMS:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            traced = {} if arm == _OFF else {**receiver.environment, "STREAMWAY_TRACES_RATIO": arm}
            # As exporters are configured as shipped: a batch each five seconds.
            traced.pop("OTEL_BSP_SCHEDULE_DELAY", None)
            meshes[arm] = stack.enter_context(Mesh(folder, options.tokens_per_s, options.streams, traced))
        case = (options.surface, options.streams, "relaxed")
        for arm, mesh in meshes.items():  # the first run of a process compiles and caches
            mesh.measure(case, 10, 1)
            print(f"warmed up: {arm}", flush=True)
        for repeat in range(options.repeats):
            order = _ARMS if repeat % 2 == 0 else tuple(reversed(_ARMS))
            for arm in order:
                sample = meshes[arm].measure(case, options.tokens, 1)
                samples[arm].append(sample)
                print(f"round {repeat + 1}/{options.repeats}  {arm:5} {token_path(sample):6.1f} µs a token", flush=True)
        spans = len(receiver.spans)
    report = {"options": vars(options), "spans": spans, "arms": [_row(arm, samples) for arm in _ARMS]}
    (RESULTS / "tracing.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(_table(report))


def _row(arm: str, samples: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    def ratios(cost: Callable[[dict[str, Any]], float]) -> dict[str, float]:
        found = [cost(row) / max(0.01, cost(base)) for row, base in zip(samples[arm], samples[_OFF], strict=True)]
        return {"median": statistics.median(found), "min": min(found), "max": max(found)}

    return {
        "traces": arm,
        "token_path_us": statistics.median(token_path(row) for row in samples[arm]),
        "token_path_ratio": ratios(token_path),
        "mesh_ratio": ratios(lambda row: float(sum(row["us_per_token"].values()))),
        "ttft_p95_ms": statistics.median(row["load"]["ttft_ms"].get("p95", 0) for row in samples[arm]),
        "errors": sum(sum(row["load"]["errors"].values()) for row in samples[arm]),
    }


def _table(report: dict[str, Any]) -> str:
    lines = [
        "| traces | token path µs a token | ratio | whole mesh, ratio | first token p95 ms | errors |",
        "|---|---|---|---|---|---|",
    ]
    for row in report["arms"]:
        path, mesh = (
            f"{found['median']:.2f} [{found['min']:.2f}–{found['max']:.2f}]"
            for found in (row["token_path_ratio"], row["mesh_ratio"])
        )
        lines.append(
            f"| {row['traces']} | {row['token_path_us']:.1f} | {path} | {mesh} | {row['ttft_p95_ms']:.0f} | {row['errors']} |"
        )
    return "\n".join([*lines, "", f"{report['spans']} spans were exported."])


if __name__ == "__main__":
    main()
