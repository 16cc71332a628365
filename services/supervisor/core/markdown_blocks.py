"""Where text that is still growing may be shown for good: its finished Markdown blocks."""

from __future__ import annotations

import re
from typing import Final

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
# Lines that belong to what is above them, across an empty line: of a list, a quotation, an indented block.
_CONTINUES: Final = re.compile(r"[ \t]|[-*+>]|\d{1,9}[.)]")


def split(text: str) -> tuple[str, str]:
    """Cuts text into what no further character can change any more, and the block that is still open.

    A block ends with an empty line after which another one begins; code ends with its fence. Both parts together are `text`.
    """
    fence, empty = "", False
    border = position = 0
    lines = text.splitlines(keepends=True)
    for line in lines:
        whole = line.endswith("\n")
        if fence:
            mark = _FENCE.match(line)
            closes = mark is not None and mark[1].startswith(fence) and not line[mark.end() :].strip()
            if closes and whole:
                fence, empty = "", False
        elif not line.strip():
            empty = True
        else:
            if empty and whole and not _CONTINUES.match(line):
                border = position
            empty = False
            if (mark := _FENCE.match(line)) is not None and whole:
                fence = mark[1]
        position += len(line)
    return text[:border], text[border:]
