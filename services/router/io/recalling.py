"""Puts what is kept of a conversation in front of a turn."""

from __future__ import annotations

from services.router.core.body import look
from services.router.core.context_table import Name
from services.router.core.conversation import choices_of, put_in_front, sent
from services.router.core.estimate import prompt_bytes
from services.router.interfaces import Ask, Opened, Opener
from services.router.io.context_ends import DECIDED_WITHIN_S
from services.router.io.context_store import Turn, digest_of
from services.router.io.contexts import Contexts
from services.router.io.leading import led_to
from services.router.io.locating import Locator
from streamway.errors import InvalidArgument, TooLarge
from streamway.runtime.clock import Clock
from streamway.runtime.ids import new_secret_id
from streamway.v1 import common_pb2
from streamway.v1.common_pb2 import ContextUse


class Recalling:
    """An opener that makes a turn of a kept context the request it would be had its client sent everything.

    Inside of what attaches a request to an earlier one, which goes by what its client sent; outside of everything that looks at
    the conversation: quota, cache, placement.
    """

    def __init__(
        self,
        inner: Opener,
        contexts: Contexts,
        locator: Locator,
        clock: Clock,
        *,
        max_message_bytes: int,
        read_body_bytes: int,
    ) -> None:
        self._inner = inner
        self._contexts = contexts
        self._locator = locator
        self._clock = clock
        self._max_message_bytes = max_message_bytes
        self._read_body_bytes = read_body_bytes

    async def open(self, ask: Ask) -> Opened:
        """Raises ContextNotFound, ContextBusy, InvalidArgument, TooLarge, StoreUnavailable, and what `inner` raises."""
        request = ask.request
        if not request.HasField("context"):
            return await self._inner.open(ask)
        if request.durability == common_pb2.DURABILITY_OFF:
            raise InvalidArgument("durability", "'off' keeps nothing, a kept context everything: ask for one of them")
        if choices_of(request, ask.body.n if ask.body is not None else None) > 1:
            raise InvalidArgument("n", "a kept context goes on with one answer: ask for one choice")
        name = Name(request.tenant, digest_of(request.context.id))
        turn = Turn(name, request.context.id, request.generation, new_secret_id())
        return await self._open(ask, turn, start=request.context.use == ContextUse.CONTEXT_USE_START)

    async def _open(self, ask: Ask, turn: Turn, *, start: bool) -> Opened:
        began = self._clock.monotonic()
        state, text = await self._contexts.begin(turn, sent(ask.request), start=start)
        if state == "done":
            return await self._led(ask, turn.generation)
        try:
            self._complete(ask, turn.name, text)
            self._contexts.lease(turn)
            opened = await self._inner.open(ask)
        except BaseException:
            self._contexts.give_up(turn)
            raise
        if self._clock.monotonic() - began > DECIDED_WITHIN_S:
            # Others may have taken it for dead by now, and its end would be nobody's.
            await self._contexts.delete(turn.name)
        if opened.attached_to:
            self._contexts.abandon(turn.generation)
        elif opened.place is None:
            self._contexts.answered(turn)
        return opened

    def _complete(self, ask: Ask, name: Name, text: bytes) -> None:
        """From here on nothing tells it from a request that came whole, but that it needs the store."""
        request = ask.request
        request.ClearField("context")
        ask.context = name
        if not text:
            return
        put_in_front(request, text, self._max_message_bytes, "STREAMWAY_MAX_MESSAGE_BYTES")
        ask.size_bytes = prompt_bytes(request)
        if ask.size_bytes > self._max_message_bytes // 2:
            raise TooLarge("the prompt", self._max_message_bytes // 2, "STREAMWAY_MAX_MESSAGE_BYTES")
        ask.body = look(request.openai_body, self._read_body_bytes)

    async def _led(self, ask: Ask, generation: str) -> Opened:
        """It has run and ended: whoever asks again has not heard of that."""
        known = await self._locator.known(generation, ask.request.tenant)
        return led_to(
            self._locator,
            ask,
            generation,
            route="home",
            worker=known.worker,
            place=known.place,
            durability=known.durability,
            durable=known.durable,
        )
