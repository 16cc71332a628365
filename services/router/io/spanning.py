"""Tells of every decision in a span. Stacked only where traces are on."""

from __future__ import annotations

from services.router.interfaces import Ask, Opened, Opener
from streamway.errors import StreamwayError
from streamway.telemetry.tracing import Tracer
from streamway.v1 import common_pb2

NAME = "streamway.open"


class Spanning:
    """An opener around all others. Its span lasts until the request is taken or refused, and says what was decided and why.

    The values of its attributes are words of enums and names of workers; nothing of the request itself is among them.
    """

    def __init__(self, inner: Opener, tracer: Tracer) -> None:
        self._inner = inner
        self._tracer = tracer

    async def open(self, ask: Ask) -> Opened:
        """Raises what `inner` raises."""
        with self._tracer.span(NAME, ask.request.traceparent) as span:
            ask.span = span.id
            try:
                opened = await self._inner.open(ask)
            except StreamwayError as refused:
                span.tell(decided(ask))
                span.fail(refused.name)
                raise
            except Exception:
                span.fail("internal")
                raise
            span.tell({**decided(ask), **taken(opened.events[0].accepted)})
            return opened


def decided(ask: Ask) -> dict[str, str]:
    """What is known whether the request was taken or not."""
    found = {"streamway.cache": ask.cache}
    if ask.tenant is not None:
        found["streamway.tier"] = ask.tenant.tier
    if ask.decision is not None:
        found |= {"streamway.route": ask.decision.branch, "streamway.reason": ask.decision.reason}
    if ask.breaker is not None:
        found["streamway.breaker"] = ask.breaker.name.lower()
    return found


def taken(accepted: common_pb2.Accepted) -> dict[str, str]:
    """What the caller was told. It has the last word on the route: "cache" and "joined" are no decisions about a worker."""
    found = {
        "streamway.route": accepted.route,
        "streamway.cache": accepted.cache,
        "streamway.durability": common_pb2.Durability.Name(accepted.durability).removeprefix("DURABILITY_").lower(),
    }
    if accepted.worker:
        found["streamway.worker"] = accepted.worker
    return found
