"""From msgspec's complaints to the catalogue's errors, with the field at fault as clients know it."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from streamway.errors import InvalidArgument, Malformed, StreamwayError

_AT: Final = re.compile(r" - at `(?:key in )?\$\.?([^`]*)`$")
_NAMED: Final = re.compile(r"^Object (contains unknown|missing required) field `([^`]*)`")


def explain(problem: Exception, what: str) -> StreamwayError:
    """The error for what a msgspec decoder raised: a field's fault, or bytes that are not JSON at all."""
    if not isinstance(problem, msgspec.ValidationError):
        # RecursionError and UnicodeDecodeError come through here too.
        text = "it is nested too deeply" if isinstance(problem, RecursionError) else str(problem)
        return Malformed(what, text[:200])
    text = str(problem)
    at = _AT.search(text)
    path = at[1] if at else ""
    text = text[: at.start()] if at else text
    named = _NAMED.match(text)
    if named:
        path = f"{path}.{named[2]}" if path else named[2]
        text = "this field is unknown" if named[1] == "contains unknown" else "this field is required"
    return InvalidArgument((path or what)[:200], text[:300].replace("`", "'"))
