"""Orders of eviction on four traces: hits, and the share of the cost that hits save.

    python -m benchmarks.cache_eviction --write      rewrites the tables of docs/cache-eviction.md and its picture

A trace is requests for keys; a key has a size and a cost (tokens), drawn once. What is not held is added, and the order says what
goes until the bytes fit. `theine` (a W-TinyLFU that counts entries and knows no bytes) is shown where it is installed, with as
many entries as fit by their mean size.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.cache.core.eviction import ORDERS, Eviction, Weighed

_KEYS: Final = 20_000
_REQUESTS: Final = 200_000
_SHARE: Final = 0.1
_PAGE: Final = Path("docs/cache-eviction.md")
_MARKS: Final = ("<!-- table -->", "<!-- end -->")
Trace = NDArray[np.int64]


@dataclass(frozen=True)
class Things:
    """What keys stand for. Sizes have a median of 2 kB, costs of 400 tokens; neither says anything of the other."""

    names: list[bytes]
    sizes: list[int]
    costs: list[float]

    @property
    def mean_bytes(self) -> float:
        """Of a key."""
        return sum(self.sizes) / len(self.sizes)


@dataclass(frozen=True)
class Score:
    """Of one order on one trace: hits by request, cost saved by cost asked, and microseconds for a request."""

    hits: float
    saved: float
    us: float


def things(count: int, seed: int) -> Things:
    """Drawn from the seed."""
    draw = np.random.default_rng(seed)
    sizes = np.exp(draw.normal(np.log(2000), 0.8, count)).astype(int) + 200
    costs = np.exp(draw.normal(np.log(400), 1.0, count)) + 1
    return Things([key.to_bytes(8, "big") for key in range(count)], sizes.tolist(), costs.tolist())


def traces(seed: int, keys: int = _KEYS, requests: int = _REQUESTS) -> dict[str, Trace]:
    """Keys by trace. Those of `scan` that come only once lie behind the others."""
    draw = np.random.default_rng(seed)
    weights = 1 / np.arange(1, keys + 1) ** 0.9
    popular = draw.choice(keys, requests, p=weights / weights.sum())
    scan = popular.copy()
    once, at, run = keys, 0, keys // 4
    while at + 2 * run < requests:
        # After a while of the usual a run of what nobody asks for again.
        scan[at + run : at + 2 * run] = np.arange(once, once + run)
        once, at = once + run, at + 3 * run
    shift = np.concatenate(
        [
            draw.permutation(keys)[part]
            for part in np.array_split(draw.choice(keys, requests, p=weights / weights.sum()), 8)
        ]
    )
    loop = np.arange(requests) % int(keys * _SHARE * 1.3)
    return {"zipf 0.9": popular, "scan": scan, "shift": shift, "loop": loop}


def run(order: Eviction, trace: Trace, of: Things, limit_bytes: int) -> Score:
    """Plays a trace."""
    held: dict[bytes, int] = {}
    used_bytes, hits, saved, asked = 0, 0, 0.0, 0.0
    names, sizes, costs = of.names, of.sizes, of.costs
    began = time.perf_counter()
    for key in trace.tolist():
        name, cost = names[key], costs[key]
        asked += cost
        if name in held:
            order.hit(name)
            hits += 1
            saved += cost
            continue
        held[name] = sizes[key]
        order.add(name, sizes[key], cost)
        used_bytes += sizes[key]
        while used_bytes > limit_bytes:
            used_bytes -= held.pop(order.evict())
    took_s = time.perf_counter() - began
    return Score(hits / len(trace), saved / asked, took_s / len(trace) * 1e6)


def scores(seed: int, keys: int = _KEYS, requests: int = _REQUESTS) -> Iterator[tuple[str, str, Score]]:
    """Trace, order (weighed ones end in " weighed") and score."""
    for name, trace in traces(seed, keys, requests).items():
        of = things(int(trace.max()) + 1, seed + 1)
        limit_bytes = int(of.mean_bytes * keys * _SHARE)
        for order, make in ORDERS.items():
            yield name, order, run(make(), trace, of, limit_bytes)
            yield name, f"{order} weighed", run(Weighed(make()), trace, of, limit_bytes)
        if (theirs := _theine(int(keys * _SHARE))) is not None:
            yield name, "theine", _run_theirs(theirs, trace, of)


def flatness(seed: int) -> dict[str, list[float]]:
    """Microseconds for a request that misses and evicts, with 1,000, 10,000 and 100,000 entries held, by order."""
    found: dict[str, list[float]] = {}
    for order, make in ORDERS.items():
        for held in (1_000, 10_000, 100_000):
            of = things(held + 50_000, seed)
            policy = Weighed(make())
            for key in range(held):
                policy.add(of.names[key], of.sizes[key], of.costs[key])
            began = time.perf_counter()
            for key in range(held, held + 50_000):
                policy.add(of.names[key], of.sizes[key], of.costs[key])
                policy.evict()
            found.setdefault(order, []).append((time.perf_counter() - began) / 50_000 * 1e6)
    return found


def _theine(entries: int) -> Any:
    # None of our dependencies.
    if importlib.util.find_spec("theine") is None:
        return None
    return importlib.import_module("theine").Cache(entries)


def _run_theirs(cache: Any, trace: Trace, of: Things) -> Score:
    hits, saved, asked = 0, 0.0, 0.0
    began = time.perf_counter()
    for key in trace.tolist():
        asked += of.costs[key]
        if cache.get(key)[1]:
            hits += 1
            saved += of.costs[key]
        else:
            cache.set(key, True)
    return Score(hits / len(trace), saved / asked, (time.perf_counter() - began) / len(trace) * 1e6)


def table(found: list[tuple[str, str, Score]]) -> str:
    """Markdown: "hits / cost saved" in percent."""
    names = list(dict.fromkeys(name for name, _, _ in found))
    by = {(name, order): score for name, order, score in found}
    lines = [f"| order | {' | '.join(names)} | mean saved | µs |", "|---|" + "---|" * (len(names) + 2)]
    for order in dict.fromkeys(order for _, order, _ in found):
        row = [by[name, order] for name in names]
        cells = " | ".join(f"{100 * each.hits:.1f} / {100 * each.saved:.1f}" for each in row)
        mean = sum(each.saved for each in row) / len(row)
        lines.append(f"| {order} | {cells} | {100 * mean:.1f} | {sum(each.us for each in row) / len(row):.1f} |")
    return "\n".join(lines)


def picture(found: list[tuple[str, str, Score]], path: Path) -> None:
    """Bars of the cost saved, weighed orders."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(name for name, _, _ in found))
    orders = [order for order in dict.fromkeys(order for _, order, _ in found) if order.endswith("weighed")]
    by = {(name, order): score for name, order, score in found}
    figure, axes = pyplot.subplots(figsize=(8, 3.5))
    for place, order in enumerate(orders):
        heights = [100 * by[name, order].saved for name in names]
        axes.bar([at + 0.16 * place for at in range(len(names))], heights, 0.15, label=order.removesuffix(" weighed"))
    axes.set_xticks([at + 0.32 for at in range(len(names))], names)
    axes.set_ylabel("cost saved, %")
    axes.legend(ncols=5, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main(argv: list[str] | None = None, show: Callable[[str], None] = print) -> None:
    """Prints the table; with --write puts it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(argv)
    found = list(scores(options.seed))
    flat = "\n".join(
        ["| order | 1,000 | 10,000 | 100,000 |", "|---|---|---|---|"]
        + [f"| {order} | {' | '.join(f'{us:.1f}' for us in row)} |" for order, row in flatness(options.seed).items()]
    )
    told = f"{table(found)}\n\nMicroseconds for an entry that comes and one that goes, by entries held:\n\n{flat}"
    show(told)
    if options.write:
        before, _, rest = _PAGE.read_text().partition(_MARKS[0])
        _PAGE.write_text(f"{before}{_MARKS[0]}\n\n{told}\n\n{_MARKS[1]}{rest.partition(_MARKS[1])[2]}")
        picture(found, _PAGE.with_suffix(".png"))


if __name__ == "__main__":
    main()
