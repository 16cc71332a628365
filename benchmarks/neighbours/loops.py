"""The loops that tokens pass, for cachegrind: every stream of one or two tenants in turn, a few tokens each time.

    python -m benchmarks.neighbours.loops --tenants 2 --streams 100 --rounds 4

With `--rounds 0` all of it is made and nothing run, so that the difference of two runs is what the tokens took. The last line
says how many tokens passed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
from collections.abc import Callable
from typing import Final

from benchmarks.hot_loops import edge, engine_reader, worker_flush

_MOST_ROUNDS: Final = 4
_TOKENS: Final = 2


def streams(count: int) -> list[list[Callable[[], None]]]:
    """For each round one turn of each stream: an engine's bytes read, flushed, and written to a WebSocket."""
    makers = (engine_reader, worker_flush, edge("websocket"))
    return [[maker(_TOKENS) for _ in range(count) for maker in makers] for _ in range(_MOST_ROUNDS)]


def main() -> None:
    """Runs what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.neighbours.loops", description=__doc__)
    parser.add_argument("--tenants", type=int, default=1)
    parser.add_argument("--streams", type=int, default=100, help="of each tenant")
    parser.add_argument("--rounds", type=int, default=_MOST_ROUNDS)
    options = parser.parse_args()

    async def run() -> None:
        made = streams(options.streams * options.tenants)
        gc.freeze()
        for turn in made[: options.rounds]:
            for each in turn:
                each()

    asyncio.run(run())
    print(options.rounds * options.streams * options.tenants * _TOKENS)


if __name__ == "__main__":
    main()
