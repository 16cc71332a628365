"""The other workers, as their leases say: who may take over what this one gives up."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

from streamway.runtime.clock import Clock
from streamway.valkey import breakers, keys
from streamway.valkey.connection import Valkey
from streamway.valkey.leases import list_leases

_NOBODY: Final[Set[str]] = frozenset()


@dataclass(slots=True)
class Peer:
    """One live worker that takes work. `free` goes down with each task that is sent its way."""

    worker: str
    models: frozenset[str]
    free: int


class Peers:
    """What `look` saw last; choosing needs no I/O. Those whose breaker some router has opened are chosen last."""

    def __init__(self, valkey: Valkey, clock: Clock, me: str) -> None:
        self._valkey = valkey
        self._clock = clock
        self._me = me
        self._seen: list[Peer] = []
        # Of each model: workers that one of the tiers is kept from.
        self._doubtful: dict[str, Set[str]] = {}

    async def look(self, model: str = "") -> None:
        """Reads the leases, and the breakers of `model` if one is named. Raises RedisError or OSError; then what was seen before
        still counts."""
        leases = await list_leases(self._valkey, self._clock, "worker")
        peers = [_peer(id_, fields) for id_, fields in leases.items() if id_ != self._me]
        self._seen = [peer for peer in peers if peer is not None]
        if model:
            found: Any = self._valkey.hgetall(keys.breaker(model))
            now_ms = self._clock.unix() * 1000
            self._doubtful[model] = {told.worker for _, told in breakers.read(await found) if told.until_ms > now_ms}

    def serve(self, model: str, but: Set[str] = _NOBODY) -> bool:
        """Whether any of them could take a task of this model, who is not in `but`."""
        return any(model in peer.models and peer.worker not in but for peer in self._seen)

    def choose(self, model: str, but: Set[str] = _NOBODY) -> str:
        """The worker with the most room, as far as is known; empty when there is none."""
        able = [peer for peer in self._seen if model in peer.models and peer.worker not in but]
        if not able:
            return ""
        doubtful = self._doubtful.get(model, _NOBODY)
        best = max(able, key=lambda peer: (peer.worker not in doubtful, peer.free))
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
