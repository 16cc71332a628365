"""Which conversation a client wants kept, and whether it sends all of it or its new turn."""

from __future__ import annotations

from typing import Final

from streamway.errors import InvalidArgument
from streamway.v1 import common_pb2

HEADER: Final = "x-streamway-context"
USES: Final = {
    "start": common_pb2.CONTEXT_USE_START,
    "append": common_pb2.CONTEXT_USE_APPEND,
}
_MOST_ID_BYTES: Final = 64


def by_header(request: common_pb2.GenerationRequest, text: str, session: str) -> None:
    """Takes over what `x-streamway-context` says: "start", "append", or nothing. Raises InvalidArgument."""
    if not text:
        return
    use = USES.get(text.strip().lower())
    if use is None:
        raise InvalidArgument(HEADER, f"{text[:20]!r} is neither 'start' nor 'append'")
    request.context.use = use
    name(request, session)


def name(request: common_pb2.GenerationRequest, session: str) -> None:
    """Names the context, if the request is of one and has no name for it: by the session id that its client said. Raises
    InvalidArgument where it said none: a key that is derived might be another client's too."""
    if not request.HasField("context"):
        return
    id_ = request.context.id or session
    if not id_:
        raise InvalidArgument("context", "name the conversation by a session id of your own")
    if len(id_.encode(errors="replace")) > _MOST_ID_BYTES:
        raise InvalidArgument("context", f"the session id names it and may have at most {_MOST_ID_BYTES} bytes")
    request.context.id = id_.encode(errors="replace").decode()
