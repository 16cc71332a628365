"""The request directives of `Cache-Control` (RFC 9111 §5.2.1), as far as they mean something for an answer.

    no-cache, max-age=60                     →  no_cache, max_age_s 60
    max-age="60" , , No-Store                →  max_age_s 60, no_store      names in any case, quoted arguments, empty members
    max-age=60, max-age=5                    →  max_age_s 60                the first of two (§4.2.1)
    max-age=soon                             →  max_age_s 0                 freshness that can't be read is none (§4.2.1)
    min-fresh=3, no-transform, x="a,no-store"  →  nothing                   what is not known is ignored (§5.2)

Total: there is no header that is an error. Of directives that conflict the stricter one holds; who reads the result sees to that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from streamway.v1 import common_pb2

# A member of a list (RFC 9110 §5.6.1), with a quoted string or without: a comma inside quotes ends nothing. What begins a quoted
# string and does not end it takes the rest.
_MEMBER: Final = re.compile(r'(?:"(?:[^"\\]|\\.)*(?:"|$)|[^,"])+', re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_SECONDS: Final = re.compile(r"[0-9]+")
# §1.2.2: what is more is this.
_MOST_SECONDS: Final = 2**31 - 1
_MOST_DIGITS: Final = 10


def parse(header: str) -> common_pb2.CacheControl | None:
    """What the header asks; None where that is nothing."""
    control = common_pb2.CacheControl()
    for name, argument in _members(header):
        match name:
            case "no-cache":
                control.no_cache = True
            case "no-store":
                control.no_store = True
            case "only-if-cached":
                control.only_if_cached = True
            case "max-age" if not control.HasField("max_age_s"):
                control.max_age_s = _seconds(argument)
    return control if control.ListFields() else None


def _members(header: str) -> Iterator[tuple[str, str]]:
    for member in _MEMBER.findall(header):
        name, _, argument = member.partition("=")
        yield name.strip().lower(), _unquoted(argument.strip())


def _unquoted(argument: str) -> str:
    if len(argument) >= 2 and argument[0] == argument[-1] == '"':
        return _ESCAPED.sub(r"\1", argument[1:-1])
    return argument


def _seconds(text: str) -> int:
    if not _SECONDS.fullmatch(text):
        return 0
    digits = text.lstrip("0")
    return _MOST_SECONDS if len(digits) > _MOST_DIGITS else min(int(digits or "0"), _MOST_SECONDS)
