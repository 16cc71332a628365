"""The records of answers that no worker knows of, and the states in a record."""

from __future__ import annotations

from typing import Any, Final

import structlog
from redis.exceptions import RedisError

from streamway.lanes.writer import RECORD_TTL_MS
from streamway.runtime.clock import Clock
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2
from streamway.v1.router_pb2 import GenerationState
from streamway.valkey import keys
from streamway.valkey.connection import Valkey

_log = structlog.get_logger("router")
_MOST_WAITING: Final = 1000
STATES: Final = {
    "queued": GenerationState.GENERATION_STATE_QUEUED,
    "running": GenerationState.GENERATION_STATE_RUNNING,
    "finished": GenerationState.GENERATION_STATE_FINISHED,
    "failed": GenerationState.GENERATION_STATE_FAILED,
    "cancelled": GenerationState.GENERATION_STATE_CANCELLED,
}


class Records:
    """Writes records of answers from the cache that have no channel."""

    def __init__(self, valkey: Valkey, scope: TaskScope, clock: Clock) -> None:
        self._valkey = valkey
        self._scope = scope
        self._clock = clock
        self._waiting: list[tuple[str, dict[str, str]]] = []
        self._writing = False

    def note_answered(self, request: common_pb2.GenerationRequest) -> None:
        """Notes, off the path, that a generation was answered from the cache. Dropped when Valkey is too slow."""
        if len(self._waiting) >= _MOST_WAITING:
            return
        fields = {
            "state": "finished",
            "worker": "",
            "tenant": request.tenant,
            "session": request.session,
            "model": request.model,
            "durability": str(int(common_pb2.DURABILITY_OFF)),
            "created_ms": str(int(self._clock.unix() * 1000)),
        }
        self._waiting.append((keys.generation(request.generation), fields))
        if not self._writing:
            self._writing = True
            self._scope.spawn(self._write(), "records")

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                async with self._valkey.pipeline(transaction=False) as pipe:
                    for key, fields in batch:
                        mapping: dict[Any, Any] = dict(fields)
                        pipe.hset(key, mapping=mapping)
                        pipe.pexpire(key, RECORD_TTL_MS)
                    await pipe.execute()
        except (RedisError, OSError) as problem:
            _log.info("records_not_written", problem=type(problem).__name__)
        finally:
            self._writing = False
