"""Puts together characters that an engine cut in two."""

from __future__ import annotations

import codecs
from typing import Final

_new_decoder: Final = codecs.getincrementaldecoder("utf-8")


class TextMender:
    """Joins the halves of code points across the pieces of one choice; a half without its other becomes U+FFFD.

    Two kinds of halves come from engines: bytes of a code point split over two JSON strings (here as the surrogates
    U+DC80…U+DCFF of Python's surrogateescape), and a `\\ud83d` whose `\\ude00` follows in the next chunk.
    """

    __slots__ = ("_bytes", "_high")

    def __init__(self) -> None:
        self._bytes = _new_decoder("replace")
        self._high = ""

    @property
    def pending(self) -> bool:
        """Half a character is kept for the next piece."""
        return bool(self._high or self._bytes.getstate()[0])

    def feed(self, text: str) -> str:
        """What is whole of the text so far and not given out yet."""
        if not text:
            return ""
        text = self._high + text
        self._high = ""
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._high = text[:-1], text[-1]
        return self._bytes.decode(_join_pairs(text).encode("utf-8", "surrogateescape"))

    def end(self) -> str:
        """What is left when nothing more comes."""
        rest = self._bytes.decode(b"", final=True) + ("\ufffd" if self._high else "")
        self._high = ""
        return rest


def _join_pairs(text: str) -> str:
    """Makes characters of surrogate pairs and U+FFFD of lone ones; escaped bytes stay."""
    if not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    made: list[str] = []
    high = ""
    for char in text:
        low = "\udc00" <= char <= "\udfff"
        if high and low:
            made.append(chr(0x10000 + ((ord(high) - 0xD800) << 10) + (ord(char) - 0xDC00)))
            high = ""
            continue
        if high:
            made.append("\ufffd")
            high = ""
        if "\ud800" <= char <= "\udbff":
            high = char
        elif low and not "\udc80" <= char <= "\udcff":
            made.append("\ufffd")
        else:
            made.append(char)
    return "".join(made) + ("\ufffd" if high else "")
