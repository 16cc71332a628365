"""What a request will cost, before anybody has counted."""

from __future__ import annotations

from services.router.core.body import Body
from services.router.core.decision import Wanted
from services.router.core.prefix import block_names
from streamway.v1 import common_pb2
from streamway.valkey.keys import task_class

_BYTES_PER_TOKEN = 4  # the usual figure for English prose; only relations between requests matter


def prompt_bytes(request: common_pb2.GenerationRequest) -> int:
    """Bytes of the prompt: of its texts, or of the original body where that is all there is."""
    texts = sum(len(message.content.encode()) for message in request.messages)
    return texts or len(request.openai_body)


def wanted_of(
    request: common_pb2.GenerationRequest, size_bytes: int, body: Body | None, expected: int, *, blocks: bool = False
) -> Wanted:
    """The request as a decision sees it. `expected` caps the output per choice; `blocks`: its prompt's are wanted."""
    limit = request.limits.max_tokens if request.limits.HasField("max_tokens") else None
    if limit is None and body is not None:
        limit = body.output_limit
    choices = (body.n if body else None) or request.sampling.n or 1
    return Wanted(
        request.model,
        request.session,
        size_bytes // _BYTES_PER_TOKEN + 1,
        min(expected, limit or expected) * choices,
        request.tenant,
        block_names(request) if blocks else (),
        lane=task_class(request.priority, request.entitlement.tier),
    )
