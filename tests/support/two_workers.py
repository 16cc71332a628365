"""Workers in the test's own process that are killed, and take over from one another."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from redis.asyncio import Redis

from services.inference_adapter.app import Adapter
from services.inference_adapter.backends.options import BackendOptions
from services.inference_adapter.backends.simulated import SimulatedBackend
from services.inference_adapter.interfaces import Backend
from services.inference_adapter.settings import AdapterSettings
from streamway.config import SharedSettings
from streamway.journal import Entry, Kind, Line, decode_events
from streamway.lanes import TaskCopy, give_away
from streamway.simulation.settings import Faults, SimulationSettings
from streamway.v1 import common_pb2
from streamway.valkey import keys
from streamway.valkey.leases import Lease

RELAXED = common_pb2.DURABILITY_RELAXED
STRICT = common_pb2.DURABILITY_STRICT


def simulated(*, rate: float = 200.0, faults: Faults | None = None, **settings: Any) -> SimulatedBackend:
    """An engine whose text is the same on every worker."""
    simulation = SimulationSettings(tokens_per_s=rate, faults=faults or Faults(), **settings)
    return SimulatedBackend(BackendOptions(kind="simulated", simulation=simulation), "w")


# What killed workers left open, closed at the end of the test.
_corpses: dict[int, AsyncExitStack] = {}


@asynccontextmanager
async def worker(url: str, name: str, engine: Backend, **settings: Any) -> AsyncIterator[Adapter]:
    """A worker on free ports; closed without a drain, unless it was killed."""
    values: dict[str, Any] = {"worker": name, "port": 0, "operations_port": 0, **settings}
    adapter = Adapter(AdapterSettings(**values), SharedSettings(valkey_url=url), engine)
    await adapter.start()
    try:
        yield adapter
    finally:
        await adapter.close()
        corpse = _corpses.pop(id(adapter), None)
        if corpse is not None:
            await corpse.aclose()


async def kill(adapter: Adapter, valkey: Redis, name: str) -> None:
    """Ends a worker as a crash would: its tasks stop where they are, nothing more is written, nobody is told.

    Its lease ends at once, as it would a few seconds later.
    """
    _corpses[id(adapter)] = adapter._stack.pop_all()
    await adapter._scope.close()
    await adapter._server.stop(0)
    adapter._work_task.cancel()
    await asyncio.wait({adapter._work_task})
    await adapter._backend.close()
    await adapter._operations.close()
    await valkey.zadd(keys.lease_index("worker"), {name: time.time() * 1000 - 1})
    await valkey.delete(keys.lease("worker", name))


async def router_lease(valkey: Redis, clock: Any) -> None:
    """Keeps workers from reclaiming by themselves, for a minute."""
    await Lease(valkey, clock, "router", "router-t", lambda: {"address": "-", "draining": "0"}, 60.0).renew()


async def copy_for(valkey: Redis, generation: str, worker_name: str, attempt: int = 2) -> None:
    """What a reclaimer does: the record first, since readers ask it where the generation is."""
    owner = await valkey.hget(keys.generation(generation), "worker")
    await give_away(valkey, generation, (owner or b"").decode(), worker_name)
    copy = TaskCopy(generation, attempt, secrets.token_hex(8))
    await valkey.xadd(keys.lane(worker_name, "gold"), copy.fields())


def events_in(entries: list[Entry], line: Line | None = None) -> list[common_pb2.Event]:
    """The events of a channel: of the entries on the line of its newest begin."""
    begins = [entry.begin.line for entry in entries if entry.begin is not None]
    line = line or begins[-1]
    return [event for entry in entries if line.holds(entry.epoch, entry.last) for event in decode_events(entry)]


def ended(entries: list[Entry]) -> bool:
    return bool(entries) and entries[-1].kind is Kind.END
