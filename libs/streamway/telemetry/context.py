"""The context of one request: frozen, in a contextvar, restored by whoever takes the task."""

from __future__ import annotations

import os
import random
import re
from contextvars import ContextVar
from typing import Final

import msgspec

_NO_TRACE: Final = "0" * 32
_NO_SPAN: Final = "0" * 16
_LOW: Final = 2**64 - 1
# Flags whose last digit is one of these have the bit "sampled".
_ODD: Final = "13579bdf"
# They need be rare, not secret, and several are made for each generation.
_source: Final = random.Random(int.from_bytes(os.urandom(16)))  # noqa: S311
_bits: Final = _source.getrandbits
if hasattr(os, "register_at_fork"):
    # Forks of one process must not make the same ones.
    os.register_at_fork(after_in_child=lambda: _source.seed(int.from_bytes(os.urandom(16))))
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


class RequestContext(msgspec.Struct, frozen=True, gc=False):
    """What is true of one request on every hop.

    `trace_id` is 32 hex digits and lives from request to response; `span_id` (16 digits) is the current hop's; `sampled`
    is the W3C flag. `model` is the model as resolved, empty until it is. `parent` is the sender's span; empty where the trace
    begins at this hop. `baggage` is what is kept of the client's, as a header.
    """

    trace_id: str
    span_id: str
    sampled: bool = False
    generation: str = ""
    model: str = ""
    tenant: str = ""
    parent: str = ""
    baggage: str = ""

    @property
    def traceparent(self) -> str:
        """W3C trace context for the next hop."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    @property
    def sender(self) -> str:
        """What the sender said of the trace; empty where it begins here."""
        return f"00-{self.trace_id}-{self.parent}-{'01' if self.sampled else '00'}" if self.parent else ""

    def hop(self) -> RequestContext:
        """What this hop does as a part of it: the same trace, a new span inside this one."""
        return msgspec.structs.replace(self, span_id=_span_id(), parent=self.span_id)


current: ContextVar[RequestContext | None] = ContextVar("streamway_request", default=None)


def begin(
    traceparent: str = "",
    span: str = "",
    *,
    sampled: float = 0.0,
    generation: str = "",
    model: str = "",
    tenant: str = "",
    baggage: str = "",
) -> RequestContext:
    """A context that goes on with the sender's trace, or begins one when `traceparent` is absent or not W3C's.

    `span` is this hop's id (16 hex digits) where it is known already; without one it is drawn. `sampled`: the share of the traces
    that begin here, 0 … 1, to be recorded, decided by the id as OpenTelemetry's sampler does; the sender's says so itself.
    """
    match = _TRACEPARENT.fullmatch(traceparent) if traceparent else None
    if match:
        trace_id, parent, flags = match.groups()
        if trace_id != _NO_TRACE and parent != _NO_SPAN:
            recorded = flags[1] in _ODD
            return RequestContext(trace_id, span or _span_id(), recorded, generation, model, tenant, parent, baggage)
    bits = _bits(128) or 1
    recorded = bits & _LOW < sampled * 2**64
    return RequestContext(f"{bits:032x}", span or _span_id(), recorded, generation, model, tenant, baggage=baggage)


def _span_id() -> str:
    return f"{_bits(64) or 1:016x}"


def recorded(traceparent: str) -> bool:
    """Whether the trace of a sender is one that is recorded."""
    match = _TRACEPARENT.fullmatch(traceparent)
    return match is not None and match[3][1] in _ODD
