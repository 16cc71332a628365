"""A dictionary for the packed contexts of one tenant: what many of its conversations say in the same bytes.

    conversations ─► strings of 8 bytes, counted once for each conversation ─► those that `COMMON` of them have
                  ─► runs of such strings, in pieces ─► the ones worth most for their length, until it is full

A string that fewer conversations have is in none: the words of one conversation do not outlive it in here. The most common ones
come last, since LZ4 looks back 64 kB and what was said before stands between the dictionary and a text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from services.router.core import context_codec as codec

# Conversations it is made of, and the others that it is judged by.
LEARNED_FROM: Final = 64
JUDGED_BY: Final = 16
# Conversations that must have a string.
COMMON: Final = 8
# Of each conversation, from its beginning.
_MOST_BYTES_EACH: Final = 16_384
# One takes another's place if it packs into so much less.
_BETTER: Final = 0.05
_WIDTH: Final = 8
_PIECE_BYTES: Final = 256
# Passes over the pieces: how much of its first worth a piece must have left, once others have taken what it shares with them.
_LEFT: Final = (0.75, 0.4, 0.1)


def trained(texts: Sequence[bytes], size_bytes: int) -> bytes:
    """A dictionary of at most so many bytes; empty where the texts have too little in common."""
    texts = [text[:_MOST_BYTES_EACH] for text in texts]
    counts = Counter[bytes]()
    for text in texts:
        counts.update(_strings(text))
    left = {string: count for string, count in counts.items() if count >= COMMON}
    pieces = {piece for text in texts for piece in _common_pieces(text, left)}
    ranked = sorted(((_worth(piece, left), piece) for piece in pieces), reverse=True)
    taken: list[bytes] = []
    room = size_bytes
    for share in _LEFT:
        later = []
        for first, piece in ranked:
            now = _worth(piece, left)
            if now >= share * first and len(piece) <= room and now:
                taken.append(piece)
                room -= len(piece)
                for string in _strings(piece):
                    left.pop(string, None)
            elif now:
                later.append((first, piece))
        ranked = later
    return b"".join(reversed(taken))


def is_better(new: bytes, old: bytes, texts: Iterable[bytes]) -> bool:
    """Conversations that neither was made of take clearly less with the new one. `old` may be empty."""
    before = after = 0
    for text in texts:
        before += len(codec.pack(text, dictionary=old))
        after += len(codec.pack(text, dictionary=new))
    return bool(new) and after <= before * (1 - _BETTER)


def _strings(text: bytes) -> set[bytes]:
    return {text[at : at + _WIDTH] for at in range(len(text) - _WIDTH + 1)}


def _common_pieces(text: bytes, common: Mapping[bytes, int]) -> Iterable[bytes]:
    """The longest pieces of a text whose strings are all common."""
    at, end = 0, len(text) - _WIDTH + 1
    while at < end:
        to = at
        while to < end and to - at <= _PIECE_BYTES - _WIDTH and text[to : to + _WIDTH] in common:
            to += 1
        if to > at:
            yield text[at : to + _WIDTH - 1]
        at = max(to, at + 1)


def _worth(piece: bytes, left: Mapping[bytes, int]) -> float:
    """How many conversations have its strings that no piece before has, for each of its bytes."""
    return sum(left.get(string, 0) for string in _strings(piece)) / len(piece)
