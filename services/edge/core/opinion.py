"""The body of a feedback: `{"good": true}` or `{"good": false}`."""

from __future__ import annotations

import msgspec

from services.edge.core.json_errors import explain


class _Opinion(msgspec.Struct, forbid_unknown_fields=True):
    good: bool


_decoder = msgspec.json.Decoder(_Opinion)


def parse(body: bytes) -> bool:
    """Whether the answer was right. Raises Malformed or InvalidArgument with the field at fault."""
    try:
        return _decoder.decode(body).good
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as problem:
        raise explain(problem, "the request body") from None
