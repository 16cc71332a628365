"""W3C baggage: of what a client sends, the members whose keys the operator knows.

https://www.w3.org/TR/baggage/: `key=value;property, key=value …`; values are percent-encoded, and stay so here.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

MOST_KEYS: Final = 8
_LONGEST_HEADER: Final = 8192
_LONGEST_VALUE: Final = 256
KEY: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,64}")
_VALUE: Final = re.compile(r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*")


def kept(header: str, keys: Collection[str]) -> str:
    """The members with one of `keys`, in their order, each key once, properties left out: a header again, or "".

    Total: what is no member, too long or unknown is left out, and a header that is too long is nothing.
    """
    if not header or not keys or len(header) > _LONGEST_HEADER:
        return ""
    found: dict[str, str] = {}
    for member in header.split(","):
        key, _, value = member.partition(";")[0].partition("=")
        key, value = key.strip(" \t"), value.strip(" \t")
        if key in keys and key not in found and len(value) <= _LONGEST_VALUE and _VALUE.fullmatch(value):
            found[key] = value
    return ",".join(f"{key}={value}" for key, value in found.items())
