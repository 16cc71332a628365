"""A text as tokens: words, Chinese words, numbers, identifiers.

"Turn Wi-Fi off at 10pm? 怎么关闭" gives turn_off, wi, fi, at, 10, pm, 怎么, 关闭. Chinese is cut at the longest word of the
tables, the rest into characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from services.cache.core.vetoes.tables import (
    antonyms,
    chinese,
    contrasts,
    dates,
    english,
    formats,
    names,
    negation,
    numbers,
    order,
    scope,
    synonyms,
)
from streamway.cachekey.simplified import SIMPLIFIED

WORD, HAN, NUMBER, CODE, SIGN = "word", "han", "number", "code", "sign"
# Nobody asks a cache for more by similarity; what comes after is not looked at, so it must not be served: see `Text.whole`.
MOST_CHARS: Final = 8_000
# How far a particle may stand behind its verb: "turn the lights in here off" is too far.
_PARTICLE_REACH: Final = 4


class Token(NamedTuple):
    """A piece of a text. `text` is folded; `surface` as written; `first`: it begins a sentence."""

    text: str
    kind: str
    surface: str
    first: bool


_HAN_CLASS: Final = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff〇"
_PATTERN: Final = re.compile(
    rf"""
      (?P<code> `[^`\n]{{1,200}}` | https?://[^\s{_HAN_CLASS}]+ | [A-Za-z0-9_.+-]+@[A-Za-z0-9-]+\.[A-Za-z0-9.-]*[A-Za-z0-9]
        | (?<!\S)--?[A-Za-z][A-Za-z0-9-]* | (?<!\S)(?:~|\.{{1,2}})?(?:/[A-Za-z0-9_.-]+)+/?
        | [A-Za-z_][A-Za-z0-9_]+(?:(?:\.|::|->)[a-z_][A-Za-z0-9_]+)+(?:\(\))? | [A-Za-z0-9]*_[A-Za-z0-9_]+
        | [a-z]+[A-Z][A-Za-z0-9]* | [A-Za-z][A-Za-z0-9]*\(\) | [Cc]\+\+ | [CFcf]\# )
    | (?P<month> (?<!\d)(?:1[0-2]|[1-9])\ ?月份? )
    | (?P<mixed> [A-Za-z]+\d[A-Za-z0-9]* )
    | (?P<number> \d+(?:[.,:]\d+)* ) (?P<tail> [A-Za-z]+ )?
    | (?P<word> [^\W\d_{_HAN_CLASS}]+(?:'[^\W\d_{_HAN_CLASS}]+)* )
    | (?P<han> [{_HAN_CLASS}]+ )
    | (?P<sign> [$€£¥₹₩%°&] )
    | (?P<end> [.!?。！？\n]+ )
    """,
    re.VERBOSE,
)
_KINDS: Final = {"code": CODE, "mixed": CODE, "number": NUMBER, "han": HAN, "sign": SIGN}
_ATTACHED: Final = frozenset({"am", "pm", "x"}) | numbers.ORDINAL_ENDS


def surface(raw: str) -> str:
    """Width and composition made one, apostrophes straight, in simplified characters; letters keep their case."""
    text = unicodedata.normalize("NFKC", raw[:MOST_CHARS])
    return text.translate(_APOSTROPHES).translate(SIMPLIFIED)


def tokenize(text: str) -> list[Token]:
    """The tokens of a `surface`."""
    return list(_merge(_han(_split(text))))


def _split(text: str) -> Iterator[Token]:
    first = True
    for match in _PATTERN.finditer(text):
        kind, piece = str(match.lastgroup), match.group()
        folded = piece.casefold()
        if kind == "end":
            first = True
            continue
        if kind == "tail":
            yield from _attached(match["number"], match["tail"], first)
        elif kind == "word":
            yield from _word(folded, piece, first)
        elif kind == "month":
            yield Token(piece.removesuffix("份").replace(" ", ""), HAN, piece, first)
        else:
            yield Token(folded.strip("`"), _KINDS[kind], piece, first)
        first = False


def _attached(number: str, tail: str, first: bool) -> Iterator[Token]:
    """Letters right behind a number: a unit ("10GB"), or an identifier with it ("2FA", "4090ti")."""
    folded = tail.casefold()
    if folded in numbers.UNITS or folded in numbers.SCALES or folded in _ATTACHED:
        yield Token(number, NUMBER, number, first)
        yield Token(folded, WORD, tail, False)
    else:
        yield Token(number + folded, CODE, number + tail, first)


def _word(folded: str, piece: str, first: bool) -> Iterator[Token]:
    """Contractions in two: "don't" is do and n't, "what's" is what and 's."""
    whole = english.UNAPOSTROPHED.get(folded, folded)
    if whole in ("can't", "cannot"):
        head, tail = "can", "n't"
    elif whole.endswith("n't") and whole != "n't":
        head, tail = whole.removesuffix("n't"), "n't"
    else:
        head, _, tail = whole.partition("'")
        tail = "'" + tail if tail else ""
    yield Token({"wo": "will", "sha": "shall"}.get(head, head) if tail == "n't" else head, WORD, piece, first)
    if tail:
        yield Token(tail, WORD, tail, False)


def _han(tokens: Iterable[Token]) -> Iterator[Token]:
    """Cuts runs of Chinese characters into words, the longest that the tables know first."""
    for token in tokens:
        if token.kind != HAN or len(token.text) == 1 or token.text in dates.WORDS:
            yield token
            continue
        run, at = token.text, 0
        while at < len(run):
            size = _longest(run, at)
            yield Token(run[at : at + size], HAN, run[at : at + size], token.first and at == 0)
            at += size


def _longest(run: str, at: int) -> int:
    for size in range(min(_MOST_HAN, len(run) - at), 1, -1):
        if run[at : at + size] in _HAN_WORDS:
            return size
    # 是不是, 能不能, 贵不贵: a question, not a negation.
    return 3 if run[at : at + 1] == run[at + 2 : at + 3] and run[at + 1] in "不没" else 1


def _merge(tokens: Iterable[Token]) -> Iterator[Token]:
    """Phrases of the tables as one token each: united_kingdom, last_week, in_one_sentence, turn_off."""
    rest = list(tokens)
    at = 0
    while at < len(rest):
        token = rest[at]
        found = next((n for n in _PHRASES.get(token.text, ()) if _spells(rest, at, n)), None)
        if found:
            size = found.count("_") + 1
            written = " ".join(each.surface for each in rest[at : at + size])
            yield Token(found, WORD, written, token.first)
            at += size
            continue
        if token.kind == WORD and _base(token.text) in antonyms.VERBS:
            reach = range(at + 1, min(at + 1 + _PARTICLE_REACH, len(rest)))
            particle = next((i for i in reach if rest[i].text in antonyms.PARTICLES), None)
            # "check in" and "sign up in", but not "move house in May": a particle in front of a noun is a preposition.
            if particle is not None and (particle == at + 1 or particle == len(rest) - 1):
                yield Token(f"{_base(token.text)}_{rest[particle].text}", WORD, token.surface, token.first)
                rest.pop(particle)
                at += 1
                continue
        yield token
        at += 1


def _spells(tokens: list[Token], at: int, phrase: str) -> bool:
    parts = phrase.split("_")
    return len(tokens) >= at + len(parts) and all(tokens[at + i].text == part for i, part in enumerate(parts))


def _base(word: str) -> str:
    for end in ("ing", "ed", "s"):
        cut = word.removesuffix(end)
        if cut != word:
            return cut[:-1] if len(cut) > 3 and cut[-1] == cut[-2] else cut
    return word


def _words_of(*texts: str) -> Iterator[str]:
    for text in texts:
        for group in text.split():
            yield from group.split("/")


_APOSTROPHES: Final = str.maketrans({"’": "'", "‘": "'", "´": "'", "ʼ": "'"})
_EVERY: Final = (
    chinese.FUNCTION | chinese.WORDS | negation.CHINESE | negation.CHINESE_TURNS | negation.FAILURE | scope.WORDS
    | set(_words_of(antonyms.CHINESE, synonyms.GROUPS)) | set(numbers.UNITS) | set(dates.WORDS)
    | dates.PAST | dates.PRESENT | dates.FUTURE
    | set(names.NAMES) | set(contrasts.MEMBERS) | order.JOINS | order.SYMMETRIC | order.HAN_FROM | order.HAN_TO
    | set(formats.WORDS) | {"百分之"}
)  # fmt: skip
_HAN_WORDS: Final = frozenset(word for word in _EVERY if len(word) > 1 and not word.isascii())
_MOST_HAN: Final = max(map(len, _HAN_WORDS))
_PHRASES: Final[dict[str, list[str]]] = {}
_EVERY_PHRASE: Final = names.PHRASES | dates.PHRASES | formats.PHRASES | scope.PHRASES | english.PHRASES
for _phrase in sorted(_EVERY_PHRASE, key=lambda phrase: (-phrase.count("_"), phrase)):
    _PHRASES.setdefault(_phrase.partition("_")[0], []).append(_phrase)
