"""What the cache's rules, threshold and verifier serve, on pairs and on a stream: python -m benchmarks.cache_eval --data FOLDER.

The format of the folder and what the tables mean: docs/cache-eval.md.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

from benchmarks.cache_pairs import read_pairs, report_pairs
from benchmarks.cache_stream import read_stream, report_stream


def main() -> None:
    """Prints a report of each data set of the folder."""
    arguments = _arguments()
    encoder = load_encoder(arguments.encoder)
    print(f"encoder {arguments.encoder}; thresholds are cosine similarities\n")
    found = False
    for path in sorted(Path(arguments.data).rglob("pairs.jsonl")):
        found = True
        report_pairs(path.parent.name, read_pairs(path), encoder)
    for path in sorted(Path(arguments.data).rglob("*.csv")):
        stream = read_stream(path)
        if stream and not arguments.no_streams:
            found = True
            report_stream(path.parent.name, stream, encoder, range(1, arguments.orders + 1))
    if not found:
        sys.exit(f"{arguments.data} has no pairs.jsonl and no stream; see docs/cache-eval.md")


def load_encoder(name: str) -> Any:
    """Something with `encode(list[str]) -> float32[n, d]`, unit length: made by calling `module:factory`."""
    module, _, factory = name.partition(":")
    return getattr(importlib.import_module(module), factory)()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with data sets")
    parser.add_argument("--encoder", default="benchmarks.cache_encoder:Multilingual", help="module:factory")
    parser.add_argument("--orders", type=int, default=3, help="random orders of a stream")
    parser.add_argument("--no-streams", action="store_true", help="pairs only")
    return parser.parse_args()


if __name__ == "__main__":
    main()
