"""What is kept of stored responses, where every edge finds it.

    sw:openai:{0197…}   hash   tenant, session, echo (what the response object repeats of its request), messages (the
                               conversation up to this response), and once it has ended: outcome

The answer itself is in the response channel until it has ended and that expires; the outcome has it from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
import structlog

from services.edge.core.responses_request import Echo, Message
from services.edge.core.responses_state import Outcome, decode_outcome, encode_outcome, response_id
from streamway.errors import GenerationNotFound, StoreUnavailable
from streamway.journal import Cursor, read_tail
from streamway.runtime.clock import Clock
from streamway.valkey import keys
from streamway.valkey.script import Script
from streamway.valkey.session import Argument, LinkLost, Session, Sessions, StoreRefused

_log = structlog.get_logger("edge")

_T = TypeVar("_T")
_STORE_WAIT_S: Final = 2.0
# How long a claim on a background response holds; two renewals may be late.
CLAIM_S: Final = 15.0
# In one step, or one that was deleted in between would come back as an outcome that belongs to nobody.
_END: Final = Script("""
if redis.call('HEXISTS', KEYS[1], 'tenant') == 0 then return 0 end
redis.call('HSET', KEYS[1], 'outcome', ARGV[1])
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
""")
_FIELDS: Final = ("tenant", "session", "echo", "messages", "outcome")
_encode: Final = msgspec.json.Encoder().encode
_echo: Final = msgspec.json.Decoder(Echo).decode
_messages: Final = msgspec.json.Decoder(list[Message]).decode


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response as it is kept. `outcome` None: it has not ended, or nobody read its end."""

    generation: str
    session: str
    echo: Echo
    messages: list[Message]
    outcome: Outcome | None


class ResponseStore:
    """All stored responses of the mesh. Each is kept for `keep_s` from its last change."""

    def __init__(self, sessions: Sessions, keep_s: float, clock: Clock) -> None:
        self._sessions = sessions
        self._clock = clock
        self._keep_ms = int(keep_s * 1000)

    async def begin(self, generation: str, tenant: str, session: str, echo: Echo, messages: Sequence[Message]) -> None:
        """Keeps a new one; a background one is claimed for this edge. Raises StoreUnavailable."""
        key = keys.openai_response(generation)
        fields = ("tenant", tenant, "session", session, "echo", _encode(echo), "messages", _encode(messages))
        await self._ask(("HSET", key, *fields), ("PEXPIRE", key, self._keep_ms))
        if echo.background:
            await self._ask(("ZADD", keys.openai_background(), _ms(self._clock.unix() + CLAIM_S), generation))

    async def read(self, generation: str, tenant: str) -> StoredResponse:
        """Raises GenerationNotFound, also for that of another tenant, or StoreUnavailable."""
        (row,) = await self._ask(("HMGET", keys.openai_response(generation), *_FIELDS))
        owner, session, echo, messages, outcome = row
        if owner is None or owner.decode() != tenant:
            raise GenerationNotFound(response_id(generation))
        return StoredResponse(
            generation,
            session.decode(),
            _echo(echo),
            _messages(messages),
            decode_outcome(outcome) if outcome is not None else None,
        )

    async def end(self, generation: str, outcome: Outcome) -> None:
        """Keeps how it ended, if it is kept at all. Without the store the channel has it for a while."""
        key, kept = keys.openai_response(generation), encode_outcome(outcome)
        try:
            await self._do(lambda session: _END.call(session, key, kept, self._keep_ms))
            await self.release(generation)
        except StoreUnavailable as problem:
            _log.warning("response_not_kept", generation=generation, problem=problem.name)

    async def forget(self, generation: str) -> None:
        """Deletes it alone; that it was never begun is no error. Raises StoreUnavailable."""
        await self._ask(("DEL", keys.openai_response(generation)))
        await self.release(generation)

    async def erase(self, generation: str) -> None:
        """Deletes it with its request and events. Raises StoreUnavailable."""
        names = (keys.openai_response(generation), keys.response(generation), keys.generation(generation))
        await self._ask(*(("DEL", name) for name in names))
        await self.release(generation)

    async def tail(self, generation: str) -> Cursor | None:
        """The newest event of its channel; None when there is none, or the store does not answer."""
        try:
            async with asyncio.timeout(_STORE_WAIT_S):
                tail = await read_tail(await self._sessions.session(), generation)
        except (TimeoutError, LinkLost, StoreRefused):
            return None
        return tail.entry.id if tail is not None else None

    # --- Who reads those in the background

    async def claim(self, generations: Collection[str], until: float) -> None:
        """This edge reads them until a Unix time at least. What has ended stays ended. Raises StoreUnavailable."""
        if generations:
            pairs = [part for generation in generations for part in (_ms(until), generation)]
            await self._ask(("ZADD", keys.openai_background(), "XX", "GT", *pairs))

    async def unclaimed(self, now: float, most: int) -> list[str]:
        """Those that no edge claims at a Unix time, longest first. Raises StoreUnavailable."""
        (found,) = await self._ask(
            ("ZRANGEBYSCORE", keys.openai_background(), "-inf", _ms(now), "LIMIT", 0, most),
        )
        return [generation.decode() for generation in found]

    async def take(self, generation: str, until: float) -> bool:
        """Claims one; False where another edge was later still. Raises StoreUnavailable."""
        (changed,) = await self._ask(("ZADD", keys.openai_background(), "XX", "GT", "CH", _ms(until), generation))
        return bool(changed)

    async def release(self, generation: str) -> None:
        """Nobody has to read it any more. Raises StoreUnavailable."""
        await self._ask(("ZREM", keys.openai_background(), generation))

    async def owner(self, generation: str) -> str:
        """The tenant, for an edge that has no client. Raises GenerationNotFound or StoreUnavailable."""
        (owner,) = await self._ask(("HGET", keys.openai_response(generation), "tenant"))
        if owner is None:
            raise GenerationNotFound(response_id(generation))
        return str(owner.decode())

    async def _ask(self, *commands: tuple[Argument, ...]) -> list[Any]:
        async def each(session: Session) -> list[Any]:
            return [await session.call(*command) for command in commands]

        return await self._do(each)

    async def _do(self, steps: Callable[[Session], Awaitable[_T]]) -> _T:
        try:
            async with asyncio.timeout(_STORE_WAIT_S):
                return await steps(await self._sessions.session())
        except (TimeoutError, LinkLost, StoreRefused):
            raise StoreUnavailable from None


def _ms(unix: float) -> int:
    return int(unix * 1000)
