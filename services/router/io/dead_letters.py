"""What becomes known of a task when it is given up."""

from __future__ import annotations

from typing import Any

from redis.exceptions import RedisError

from streamway.errors import TooManyAttempts, to_status
from streamway.lanes.dead import DEAD_RECORD_TTL_MS
from streamway.lanes.task import MOST_ATTEMPTS
from streamway.v1 import common_pb2, journal_pb2
from streamway.valkey import keys
from streamway.valkey.connection import Valkey


class DeadLetters:
    """What giving a task up needs to know; keeps its request for whoever tries it again."""

    def __init__(self, valkey: Valkey) -> None:
        self._valkey = valkey

    async def model_of(self, generation: str) -> str:
        key = keys.generation(generation)
        try:
            model: Any = await self._valkey.hget(key, "model")
            await self._valkey.pexpire(key, DEAD_RECORD_TTL_MS)
        except (RedisError, OSError):
            return "unknown"
        return model.decode() if model else "unknown"

    def end_payload(self, generation: str) -> bytes:
        told = common_pb2.Error(status=to_status(TooManyAttempts(MOST_ATTEMPTS)))
        return journal_pb2.JournalPayload(events=[common_pb2.Event(error=told)]).SerializeToString()
