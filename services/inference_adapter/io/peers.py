"""The other workers, as their leases say: who may take over what this one gives up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from streamway.runtime.clock import Clock
from streamway.valkey import keys
from streamway.valkey.connection import Valkey
from streamway.valkey.leases import list_leases


@dataclass(slots=True)
class Peer:
    """One live worker that takes work. `free` goes down with each task that is sent its way."""

    worker: str
    models: frozenset[str]
    free: int


class Peers:
    """What `look` saw last; choosing needs no I/O."""

    def __init__(self, valkey: Valkey, clock: Clock, me: str) -> None:
        self._valkey = valkey
        self._clock = clock
        self._me = me
        self._seen: list[Peer] = []

    async def look(self) -> None:
        """Reads the leases. Raises RedisError or OSError; what was seen before then still counts."""
        leases = await list_leases(self._valkey, self._clock, "worker")
        peers = [_peer(id_, fields) for id_, fields in leases.items() if id_ != self._me]
        self._seen = [peer for peer in peers if peer is not None]

    def serve(self, model: str) -> bool:
        """Whether any of them could take a task of this model."""
        return any(model in peer.models for peer in self._seen)

    def choose(self, model: str) -> str:
        """The worker with the most room, as far as is known; empty when there is none."""
        able = [peer for peer in self._seen if model in peer.models]
        if not able:
            return ""
        best = max(able, key=lambda peer: peer.free)
        best.free -= 1
        return best.worker


def lane_for(worker: str, model: str, class_: keys.TaskClass) -> str:
    """The lane of a worker, or without one the pool of the model."""
    return keys.lane(worker, class_) if worker else keys.pool(model, class_)


def _peer(id_: str, fields: Mapping[str, str]) -> Peer | None:
    """None for one that takes no work, or says nothing that can be read."""
    if fields.get("draining") == "1" or fields.get("healthy") == "0":
        return None
    try:
        models = frozenset(str(model["name"]) for model in json.loads(fields["models"]))
        return Peer(id_, models, int(fields.get("window_free") or 0))
    except (KeyError, TypeError, ValueError):
        return None
