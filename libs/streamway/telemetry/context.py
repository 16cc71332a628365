"""The context of one request: frozen, in a contextvar, restored by whoever takes the task."""

from __future__ import annotations

import re
import secrets
from contextvars import ContextVar
from dataclasses import dataclass, replace

_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What is true of one request on every hop.

    `trace_id` is 32 hex digits and lives from request to response; `span_id` (16 digits) is the current hop's; `sampled`
    is the W3C flag. `model` is the model as resolved, empty until it is.
    """

    trace_id: str
    span_id: str
    sampled: bool = False
    generation: str = ""
    model: str = ""
    tenant: str = ""

    @property
    def traceparent(self) -> str:
        """W3C trace context for the next hop."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    def hop(self) -> RequestContext:
        """The same trace with a new span id."""
        return replace(self, span_id=secrets.token_hex(8))


current: ContextVar[RequestContext | None] = ContextVar("streamway_request", default=None)


def begin(
    traceparent: str = "",
    span: str = "",
    *,
    sampled: bool = False,
    generation: str = "",
    model: str = "",
    tenant: str = "",
) -> RequestContext:
    """A context that goes on with the sender's trace, or begins one when `traceparent` is absent or not W3C's.

    `span` is this hop's id (16 hex digits) where a span is recorded for it; without one it is drawn. `sampled`: a trace that
    begins here is to be recorded; the sender's says so itself.
    """
    match = _TRACEPARENT.fullmatch(traceparent)
    if match and set(match[1]) != {"0"} and set(match[2]) != {"0"}:
        trace_id, sampled = match[1], bool(int(match[3], 16) & 1)
    else:
        trace_id = secrets.token_hex(16)
    return RequestContext(trace_id, span or secrets.token_hex(8), sampled, generation, model, tenant)
