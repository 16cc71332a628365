"""The comparison of orders of eviction: the same from the same seed, and in the order that the page tells."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cache_eviction import scores, table, traces

KEYS, REQUESTS = 1_000, 8_000


def test_a_run_is_the_same_from_the_same_seed_and_tells_the_orders_apart() -> None:
    runs = [[(name, order, each.hits, each.saved) for name, order, each in scores(3, KEYS, REQUESTS)] for _ in range(2)]
    assert runs[0] == runs[1]
    hits = {(name, order): each for name, order, each, _ in runs[0]}
    saved = {(name, order): each for name, order, _, each in runs[0]}
    assert hits["loop", "lru"] < 0.05 < hits["loop", "w-tinylfu"]
    assert hits["scan", "lru"] < hits["scan", "s3-fifo"]
    for order in ("lru", "s3-fifo", "sieve", "w-tinylfu", "lru-2"):
        assert saved["zipf 0.9", f"{order} weighed"] > saved["zipf 0.9", order]


def test_what_a_scan_brings_comes_once() -> None:
    scan = traces(3, KEYS, REQUESTS)["scan"]
    once = scan[scan >= KEYS]
    assert len(once) == len(set(once.tolist())) > 0


def test_the_page_has_every_order() -> None:
    page = (Path(__file__).parents[3] / "docs/cache-eviction.md").read_text()
    for line in table(list(scores(3, 200, 500))).splitlines()[2:]:
        order = line.split("|")[1].strip()
        assert f"| {order} |" in page
