"""Ids of the spans of engine calls, which every worker can tell from what the journal says: so a call that goes on with another
one's text links to it, though the two never meet."""

from __future__ import annotations

from hashlib import blake2b

from streamway.telemetry.context import RequestContext


def span_of_call(generation: str, epoch: int) -> str:
    """The span id of the call of this epoch, 16 hex digits."""
    return blake2b(f"{generation}/{epoch}".encode(), digest_size=8).hexdigest()


def trace_of_call(context: RequestContext, generation: str, epoch: int) -> str:
    """Its W3C trace context: all calls of a generation are in one trace."""
    return f"00-{context.trace_id}-{span_of_call(generation, epoch)}-{'01' if context.sampled else '00'}"
