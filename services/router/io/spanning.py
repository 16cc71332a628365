"""Tells of every decision: in the table of what this router did of late, and in a span where the trace is recorded."""

from __future__ import annotations

from services.router.interfaces import Ask, Opened, Opener
from streamway.errors import StreamwayError
from streamway.telemetry.hops import Hops
from streamway.telemetry.tracing import calling
from streamway.v1 import common_pb2

NAME = "streamway.open"
_LONGEST_MODEL = 64


class Spanning:
    """An opener around all others. Its span lasts until the request is taken or refused, and says what was decided and why.

    The values of its attributes are words of enums, ids, and names of models and workers; no text of the request is among them.
    """

    def __init__(self, inner: Opener, hops: Hops) -> None:
        self._inner = inner
        self._hops = hops

    async def open(self, ask: Ask) -> Opened:
        """Raises what `inner` raises."""
        request = ask.request
        if self._hops.recording:
            request.traceparent = calling(request.traceparent)
        here = self._hops.context(request.traceparent)
        # The next hop's parent is this one, whether it is recorded or not.
        request.traceparent = here.traceparent
        ask.here = here
        facts = {"gen_ai.operation.name": "chat", "gen_ai.request.model": request.model[:_LONGEST_MODEL]}
        hop = self._hops.begin(NAME, here, request.generation, kind="producer", facts=facts)
        try:
            opened = await self._inner.open(ask)
        except StreamwayError as refused:
            hop.tell(decided(ask))
            hop.end(refused.name)
            raise
        except Exception:
            hop.end("internal")
            raise
        except BaseException:
            hop.end("cancelled")
            raise
        hop.tell({**decided(ask), **taken(opened.events[0].accepted)})
        hop.end("taken" if opened.place is not None or opened.attached_to else "answered")
        return opened


def decided(ask: Ask) -> dict[str, str]:
    """What is known whether the request was taken or not."""
    found = {"streamway.cache": ask.cache, "gen_ai.conversation.id": ask.request.session}
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
        "gen_ai.response.model": accepted.model,
    }
    if accepted.worker:
        found["streamway.worker"] = accepted.worker
    return found
