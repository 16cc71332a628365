"""What ids look like; without clock and randomness, so that pure code may check them."""

from __future__ import annotations

import re

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def is_generation_id(text: str) -> bool:
    """True for the one accepted spelling: 36 characters, lower case."""
    return _UUID.fullmatch(text) is not None
