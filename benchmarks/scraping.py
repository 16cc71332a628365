"""What it does to streams that every process of the mesh is asked for its metrics each second (K4 of `docs/acceptance.md`).

    python -m benchmarks.scraping --streams 200 --tokens 100 --repeats 6

One mesh under the same load again and again, scraped and not, in turn and in changing order; a pair is two runs next to each
other. Printed are medians and the ratio of each pair: p99 of the first token and of the gaps between tokens, CPU a token. The
scraper is a thread of this benchmark, which is not measured, and asks for OpenMetrics, with exemplars, as Prometheus does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.accounting import machine
from benchmarks.run import RESULTS, Mesh, token_path

_ACCEPT: Final = "application/openmetrics-text;version=1.0.0"
_ARMS: Final = ("not scraped", "scraped each second")


class Scraper:
    """Asks for the metrics of processes each second while it is entered, at their operations addresses."""

    def __init__(self, addresses: list[str]) -> None:
        self._urls = [f"http://{address}/metrics" for address in addresses]
        self.took_ms: list[float] = []
        self.bytes = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Until the block is left."""
        over = threading.Event()

        def work() -> None:
            while not over.wait(1.0):
                self.bytes = sum(map(self._ask, self._urls))

        thread = threading.Thread(target=work, name="scraper")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _ask(self, url: str) -> int:
        began = time.perf_counter()
        request = urllib.request.Request(url, headers={"Accept": _ACCEPT})
        with urllib.request.urlopen(request, timeout=10) as response:
            size = len(response.read())
        self.took_ms.append((time.perf_counter() - began) * 1000)
        return size


def main() -> None:
    """Parses the command line, measures, prints a table, writes `results/scraping.json`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scraping", description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--tokens-per-s", type=float, default=20.0)
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--surface", default="websocket", choices=["sse", "websocket", "grpc"])
    options = parser.parse_args()
    samples: dict[str, list[dict[str, Any]]] = {arm: [] for arm in _ARMS}
    case = (options.surface, options.streams, "relaxed")
    with (
        tempfile.TemporaryDirectory() as folder,
        Mesh(Path(folder), options.tokens_per_s, options.streams) as mesh,
    ):
        scraper = Scraper(mesh.operations)
        mesh.measure(case, 10, 1)  # the first run of a process compiles and caches
        for repeat in range(options.repeats):
            for arm in _ARMS if repeat % 2 == 0 else reversed(_ARMS):
                if arm == _ARMS[0]:
                    sample = mesh.measure(case, options.tokens, 1)
                else:
                    with scraper.running():
                        sample = mesh.measure(case, options.tokens, 1)
                samples[arm].append(sample)
                print(f"pair {repeat + 1}/{options.repeats}  {arm:20} {_told(sample)}", flush=True)
    report = {
        "options": vars(options),
        "machine": machine(),
        "scrape_ms_median": statistics.median(scraper.took_ms),
        "scrape_bytes_of_all": scraper.bytes,
        "arms": [_row(arm, samples) for arm in _ARMS],
    }
    (RESULTS / "scraping.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(_table(report))


def _first_p99(sample: dict[str, Any]) -> float:
    return float(sample["load"]["ttft_ms"]["p99"])


def _gap_p99(sample: dict[str, Any]) -> float:
    return float(sample["load"]["itl_ms"]["p99"])


_FIGURES: Final = {"first_p99_ms": _first_p99, "gap_p99_ms": _gap_p99, "token_path_us": token_path}


def _told(sample: dict[str, Any]) -> str:
    errors = sum(sample["load"]["errors"].values())
    return (
        f"first token p99 {_first_p99(sample):6.0f} ms, gap p99 {_gap_p99(sample):6.0f} ms, "
        f"{token_path(sample):6.1f} µs a token, errors {errors}"
    )


def _row(arm: str, samples: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    row: dict[str, Any] = {"arm": arm, "errors": sum(sum(one["load"]["errors"].values()) for one in samples[arm])}
    for name, figure in _FIGURES.items():
        pairs = zip(samples[arm], samples[_ARMS[0]], strict=True)
        ratios = [figure(one) / max(0.01, figure(base)) for one, base in pairs]
        row[name] = statistics.median(map(figure, samples[arm]))
        row[f"{name}_ratio"] = {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
    return row


def _table(report: dict[str, Any]) -> str:
    lines = [
        "| | first token p99 ms | ratio | gap p99 ms | ratio | token path µs a token | ratio | errors |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in report["arms"]:
        cells = [row["arm"]]
        for name in _FIGURES:
            ratio = row[f"{name}_ratio"]
            cells += [f"{row[name]:.1f}", f"{ratio['median']:.2f} [{ratio['min']:.2f}–{ratio['max']:.2f}]"]
        lines.append(f"| {' | '.join(cells)} | {row['errors']} |")
    size = report["scrape_bytes_of_all"]
    return "\n".join([*lines, "", f"A scrape took {report['scrape_ms_median']:.1f} ms; all together {size} bytes."])


if __name__ == "__main__":
    main()
