"""Which router a session's work is opened at."""

from __future__ import annotations

from collections.abc import Sequence

import xxhash


def choose_router(session: str, routers: Sequence[str]) -> str:
    """The router of a session among those that are up, by highest hash of both names; empty when none is.

    Every edge makes the same choice, and a router that goes moves only its own sessions.
    """
    return max(routers, key=lambda router: xxhash.xxh3_64_intdigest(f"{router}\0{session}".encode()), default="")
