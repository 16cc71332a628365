"""Puts tables where a page has a place for them:

<!-- table: NAME -->
…
<!-- end of table -->
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path


def put(page: Path, name: str, lines: Sequence[str]) -> None:
    """Replaces what is at the place. Raises ValueError when the page has none of that name, or several."""
    text = page.read_text(encoding="utf-8")
    place = re.compile(rf"(<!-- table: {re.escape(name)} -->\n).*?(<!-- end of table -->)", re.DOTALL)
    if len(place.findall(text)) != 1:
        raise ValueError(f"{page} must have one place for the table {name}")
    page.write_text(place.sub(lambda found: found[1] + "\n".join(lines) + "\n" + found[2], text), encoding="utf-8")
