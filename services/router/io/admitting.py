"""Decides whether a request may come in, and fills what its sender left out."""

from __future__ import annotations

from msgspec.structs import replace

from services.router.core import admission, validate
from services.router.core.body import look
from services.router.core.estimate import prompt_bytes
from services.router.core.idempotency import digest_of
from services.router.interfaces import Ask, Opened, Opener
from services.router.io.books import Books
from services.router.metrics import RouterMetrics
from streamway.affinity import key_of
from streamway.config.baggage import kept
from streamway.errors import MemoryPressure, StreamwayError
from streamway.memory import MemoryWatch
from streamway.runtime.clock import Clock
from streamway.telemetry import context
from streamway.tenancy import entitle
from streamway.tenancy.watching import TenancyWatch
from streamway.v1 import common_pb2
from streamway.valkey.keys import is_bulk, task_class


class Admitting:
    """The outermost opener. `request.tenant` must be the authenticated one already, and its entitlement a peer's."""

    def __init__(
        self,
        inner: Opener,
        books: Books,
        clock: Clock,
        metrics: RouterMetrics,
        *,
        most_generations: int,
        max_message_bytes: int,
        read_body_bytes: int,
        durability: common_pb2.Durability.ValueType,
        unread_s: float,
        tenants: TenancyWatch,
        memory: MemoryWatch,
        baggage_keys: tuple[str, ...] = (),
    ) -> None:
        self._inner = inner
        self._books = books
        self._clock = clock
        self._metrics = metrics
        self._most_generations = most_generations
        # A prompt may be in a message twice: as typed messages and inside the original body.
        self._prompt_limit_bytes = max_message_bytes // 2
        self._read_body_bytes = read_body_bytes
        self._durability = durability
        self._unread_s = unread_s
        self._tenants = tenants
        self._memory = memory
        self._baggage_keys = baggage_keys
        self._opening = 0
        self.draining = False

    @property
    def opening(self) -> int:
        """Requests that are being decided."""
        return self._opening

    async def open(self, ask: Ask) -> Opened:
        """Raises what validation and admission refuse with, and what `inner` raises."""
        self._opening += 1
        try:
            self._admit(ask)
            opened = await self._inner.open(ask)
        except StreamwayError as refused:
            self._metrics.admissions.labels(refused.name).inc()
            raise
        finally:
            self._opening -= 1
        self._metrics.admissions.labels("admitted").inc()
        return opened

    def _admit(self, ask: Ask) -> None:
        live = len(self._books) + self._opening - 1
        refusal = admission.refusal(draining=self.draining, live=live, most=self._most_generations)
        if refusal is not None:
            raise refusal
        request = ask.request
        ask.size_bytes = prompt_bytes(request)
        if request.HasField("context") and not request.context.id:
            request.context.id = request.session
        now_ms = self._clock.unix() * 1000
        validate.check(request, now_ms, ask.size_bytes, self._prompt_limit_bytes, "STREAMWAY_MAX_MESSAGE_BYTES")
        ask.tenant, ask.lowered_priority = entitle(request, self._tenants.tenancy)
        request.ClearField("load_tokens")  # for us to say
        if self._memory.pressed and is_bulk(task_class(request.priority)):
            raise MemoryPressure("router")
        # Told in `accepted`, so the worker must not decide otherwise.
        request.durability = request.durability or self._durability
        request.on_disconnect = request.on_disconnect or common_pb2.ON_DISCONNECT_GRACE
        if request.on_disconnect == common_pb2.ON_DISCONNECT_CONTINUE and not request.deadline_unix_ms:
            # Nobody may ever come for it, and then this alone ends it.
            request.deadline_unix_ms = int(now_ms + self._unread_s * 1000)
        ask.body = look(request.openai_body, self._read_body_bytes)
        request.session = key_of(request)
        ask.digest = digest_of(request)
        request.baggage = kept(request.baggage, self._baggage_keys)
        here = ask.here or context.begin(request.traceparent)
        known = {"generation": request.generation, "model": request.model, "tenant": request.tenant}
        context.current.set(replace(here, **known, baggage=request.baggage))
        request.traceparent = here.traceparent
