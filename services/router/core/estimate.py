"""How many tokens a request will put in flight."""

from __future__ import annotations

from services.router.core.body import Body
from streamway.v1 import common_pb2

_BYTES_PER_TOKEN = 4  # the usual figure for English prose; only relations between requests matter


def prompt_bytes(request: common_pb2.GenerationRequest) -> int:
    """Bytes of the prompt: of its texts, or of the original body where that is all there is."""
    texts = sum(len(message.content.encode()) for message in request.messages)
    return texts or len(request.openai_body)


def tokens_in_flight(size_bytes: int, request: common_pb2.GenerationRequest, body: Body | None, expected: int) -> int:
    """Prompt tokens plus expected output of all choices. `expected` caps the output per choice."""
    limit = request.limits.max_tokens if request.limits.HasField("max_tokens") else None
    if limit is None and body is not None:
        limit = body.output_limit
    choices = (body.n if body else None) or request.sampling.n or 1
    return size_bytes // _BYTES_PER_TOKEN + 1 + min(expected, limit or expected) * choices
