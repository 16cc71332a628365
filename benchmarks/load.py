"""One load run in a process of its own: prints its figures as one line of JSON.

python -m benchmarks.load --surface sse --target http://127.0.0.1:8080 --streams 100
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json

import uvloop

from benchmarks.clients import grpc_connect, http, idle, multiplexed, websocket
from benchmarks.clients.plan import Plan, Tally, now

SURFACES = {
    "sse": http.streams,
    "rest": http.wholes,
    "websocket": websocket.run,
    "one_websocket": multiplexed.run,
    "idle": idle.run,
    "grpc": grpc_connect.run,
}


def main() -> None:
    """Parses the command line and runs one plan, for at most `--limit-s` seconds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--surface", choices=sorted(SURFACES), required=True)
    parser.add_argument(
        "--target", required=True, help="http://host:port of an edge, or host:port of a router for grpc"
    )
    parser.add_argument("--model", default="simulated")
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--ramp-s", type=float, default=1.0)
    parser.add_argument("--prompt-bytes", type=int, default=80)
    parser.add_argument("--durability", choices=["off", "relaxed", "strict"], default="relaxed")
    parser.add_argument("--repeated", type=float, default=0.0, help="share of requests that ask for one of ten answers")
    parser.add_argument("--cut-at", type=int, default=0, help="cut each connection at this frame; sse only")
    parser.add_argument("--source", type=int, default=0, help="connect from 127.0.0.SOURCE on; websocket and idle only")
    parser.add_argument("--api-key", default="")
    parser.add_argument("--limit-s", type=float, default=30.0)
    options = parser.parse_args()
    plan = Plan(
        target=options.target,
        model=options.model,
        streams=options.streams,
        tokens=options.tokens,
        rounds=options.rounds,
        ramp_s=options.ramp_s,
        api_key=options.api_key,
        prompt_bytes=options.prompt_bytes,
        durability=options.durability,
        repeated=options.repeated,
        cut_at=options.cut_at,
        source=options.source,
    )
    tally = Tally()
    gc.freeze()
    started = now()

    async def bounded() -> None:
        try:
            await asyncio.wait_for(SURFACES[options.surface](plan, tally), options.limit_s)
        except TimeoutError:
            tally.error(f"not over after {options.limit_s:.0f} s")

    uvloop.run(bounded())
    print(json.dumps(tally.summary(now() - started)))


if __name__ == "__main__":
    main()
