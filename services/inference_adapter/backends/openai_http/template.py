"""What is the same in every chunk of one stream, so that its text can be taken out without reading the rest again.

    {"id":"c-1","created":1796032557,"choices":[{"index":0,"delta":{"content":"   Hel   "},"finish_reason":null}]}
    └─────────────────────────────── before ──────────────────────────────────┘└─text─┘└─────────── after ──────────┘

Engines that count, time or date each chunk have no template, or a new one each second; their chunks are read one by one. A text
is still read as JSON, so that whatever is no string of JSON is not taken for one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

_PROBE: Final = b"a text that no engine sends"
_string: Final = msgspec.json.Decoder(str)
_strings: Final = msgspec.json.Decoder(list[str])


class Template:
    """Of the chunks of choice `choice` with text in mid-answer."""

    __slots__ = ("_after", "_before", "_between", "_first", "_last", "_least", "choice")

    def __init__(self, choice: int, before: bytes, after: bytes) -> None:
        self.choice = choice
        self._before, self._after = before, after
        self._least = len(before) + len(after)
        # The same as server-sent events, one behind the other.
        self._first, self._last = b"data: " + before, after + b"\n\n"
        self._between = self._last + self._first

    def text(self, chunk: bytes) -> str:
        """Of one chunk; empty where it does not fit, or has none."""
        if len(chunk) <= self._least or not (chunk.startswith(self._before) and chunk.endswith(self._after)):
            return ""
        try:
            return _string.decode(b'"%b"' % chunk[len(self._before) : -len(self._after)])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ""

    def texts(self, events: bytes) -> tuple[list[str], int]:
        """Of as many of these server-sent events as can be read together, and how many bytes those are: none and 0 where the
        first does not fit, or one of them is not what it seems."""
        end = events.rfind(self._last) + len(self._last)
        if end <= len(self._first) or not events.startswith(self._first):
            return [], 0
        within = events[len(self._first) : end - len(self._last)]
        try:
            texts = _strings.decode(b'["%b"]' % within.replace(self._between, b'","'))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return [], 0
        return (texts, end) if all(texts) else ([], 0)


def template(chunk: bytes, choice: int, text: str, content: Callable[[bytes], str | None]) -> Template | None:
    """Of a chunk with this text; None where it is not to be found in it. `content` reads the text of another such chunk, None
    where it is none."""
    said = b'"%b"' % text.encode()
    if b"\n" in chunk or b"\r" in chunk or chunk.count(said) != 1:
        return None
    before, _, after = chunk.partition(said)
    before, after = before + b'"', b'"' + after
    # The same bytes could be another field, or lie between two: then another text in their place is not read as the text.
    if content(before + _PROBE + after) != _PROBE.decode():
        return None
    return Template(choice, before, after)
