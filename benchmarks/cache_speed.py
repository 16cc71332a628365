"""How fast the cache is: python -m benchmarks.cache_speed

Three parts, each printed as a table of Markdown; `--parts index,calls,mesh` takes some of them:

* index: one context of many entries, synthetic vectors of 384 numbers in clusters, each kind of index: time to fill and to build,
  memory, recall against comparing all, search times, and how late the event loop is meanwhile;
* calls: one cache process, exact and semantic lookups at a fixed rate;
* mesh: a whole mesh with the simulated engine, through the router: what a lookup adds, what a hit takes.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
from pathlib import Path

import structlog
import uvloop

# As the cache does it, before numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from benchmarks.cache_speed_calls import measure_calls, measure_mesh, node
from benchmarks.cache_speed_index import as_row, index_table, measure_index
from services.cache.core.semantic.kinds import Kind


async def _run(args: argparse.Namespace) -> None:
    parts = args.parts.split(",")
    if "index" in parts:
        cases = []
        for wanted in args.indexes.split(","):
            kind, _, entries = wanted.partition(":")
            cases.append(
                await measure_index(Kind(kind), int(entries), args.questions, lambda text: print(text, flush=True))
            )
            print("\n".join(index_table(cases[-1:])), flush=True)
        print("\n" + "\n".join(index_table(cases)))
        if args.json:
            Path(args.json).write_text(json.dumps([as_row(case) for case in cases], indent=1) + "\n", encoding="utf-8")
    if "calls" in parts:
        print("\n" + "\n".join(await measure_calls(args.seconds)))
    if "mesh" in parts:
        print("\n" + "\n".join(await measure_mesh(args.rounds)))


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="Measures how fast the cache is.")
    parser.add_argument("--parts", default="index,calls,mesh", help="which parts, by comma")
    parser.add_argument(
        "--indexes",
        default="flat:50000,hnsw:50000,ivf_pq:50000,hnsw:1000000,ivf_pq:1000000",
        help="kind:entries, by comma",
    )
    parser.add_argument("--questions", type=int, default=500, help="searches of an index")
    parser.add_argument("--seconds", type=float, default=20.0, help="of calls at each rate")
    parser.add_argument("--rounds", type=int, default=100, help="requests of each kind through the mesh, at most 640")
    parser.add_argument("--json", help="writes the figures of the indexes here too")
    parser.add_argument("--node", help=argparse.SUPPRESS)
    args = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    # The loop that the cache has.
    uvloop.run(node(args.node) if args.node else _run(args))


if __name__ == "__main__":
    main()
