"""What becomes known of a task when it is given up."""

from __future__ import annotations

from redis.exceptions import RedisError

from streamway.errors import TooManyAttempts
from streamway.journal.ending import error_payload
from streamway.lanes.dead import DEAD_RECORD_TTL_MS
from streamway.lanes.records import models_of
from streamway.lanes.task import MOST_ATTEMPTS
from streamway.valkey import keys
from streamway.valkey.connection import Valkey


class GivenUp:
    """The reclaimer's `DeadLetters`, from the records of generations; keeps a request for whoever tries it again."""

    def __init__(self, valkey: Valkey) -> None:
        self._valkey = valkey

    async def model_of(self, generation: str) -> str:
        """The model, "unknown" where nobody can say any more."""
        try:
            await self._valkey.pexpire(keys.generation(generation), DEAD_RECORD_TTL_MS)
            return (await models_of(self._valkey, [generation]))[0] or "unknown"
        except (RedisError, OSError):
            return "unknown"

    def end_payload(self, generation: str) -> bytes:
        """The end of a generation that was given up."""
        return error_payload(TooManyAttempts(MOST_ATTEMPTS))
