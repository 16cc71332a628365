"""A question, and what the rules ask of it: each found once, when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Final, TypeVar

from services.cache.core.vetoes import tokens
from services.cache.core.vetoes.quantities import Quantity, quantities
from services.cache.core.vetoes.stem import stem
from services.cache.core.vetoes.tables import chinese, dates, english, negation
from services.cache.core.vetoes.tokens import CODE, HAN, NUMBER, SIGN, WORD, Token

T = TypeVar("T")

_MARKS: Final = frozenset({"n't", "'s", "'d", "'ll", "'re", "'ve", "'m"})


class Text:
    """A text that is compared with others. Comparing two costs little once both have been asked."""

    def __init__(self, raw: str) -> None:
        self.raw = raw
        self._found: dict[object, object] = {}

    def once(self, find: Callable[[Text], T]) -> T:
        """What a rule finds in it, found only once."""
        if find not in self._found:
            self._found[find] = find(self)
        return self._found[find]  # type: ignore[return-value]  # what is kept under a function came from it

    def __repr__(self) -> str:
        return f"Text({len(self.raw)} characters)"  # what people asked belongs into no log

    @property
    def whole(self) -> bool:
        """Every character of it is looked at."""
        return len(self.raw) <= tokens.MOST_CHARS

    @cached_property
    def surface(self) -> str:
        """As written, but one width, one apostrophe, simplified characters."""
        return tokens.surface(self.raw)

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """All of it in order."""
        return tuple(tokens.tokenize(self.surface))

    @cached_property
    def words(self) -> frozenset[str]:
        """The folded tokens."""
        return frozenset(token.text for token in self.tokens)

    @cached_property
    def stems(self) -> frozenset[str]:
        """The tokens without endings."""
        return frozenset(stem(word) for word in self.words)

    @cached_property
    def content(self) -> tuple[str, ...]:
        """What carries the meaning, in order: stems without grammar, negations and signs."""
        return tuple(
            stem(token.text) if token.kind == WORD else token.text
            for token in self.tokens
            if token.kind != SIGN and not _is_grammar(token)
        )

    @cached_property
    def bag(self) -> frozenset[str]:
        """`content` without order."""
        return frozenset(self.content)

    @cached_property
    def sorted_content(self) -> tuple[str, ...]:
        """`content` by the alphabet: equal for texts of the same words."""
        return tuple(sorted(self.content))

    @cached_property
    def quantities(self) -> tuple[Quantity, ...]:
        """The numbers with their units."""
        return quantities(self.tokens)

    @cached_property
    def negations(self) -> tuple[str, ...]:
        """The words that turn it round."""
        found: list[str] = []
        skip = 0
        for i, token in enumerate(self.tokens):
            if skip:
                skip -= 1
                continue
            idle = next((p for p in negation.ENGLISH_IDLE if self._reads(i, p)), None)
            if idle:
                skip = len(idle) - 1
            elif (
                token.text in negation.ENGLISH or token.text in negation.CHINESE or token.text in negation.CHINESE_TURNS
            ):
                found.append(token.text)
        return tuple(found)

    @cached_property
    def times(self) -> dict[str, frozenset[str]]:
        """What places it in time: values by slot."""
        found: dict[str, set[str]] = {}
        for i, token in enumerate(self.tokens):
            slot = dates.WORDS.get(token.text)
            if slot is None or (token.text == "may" and not self._is_month(i)):
                continue
            found.setdefault(slot[0], set()).add(slot[1])
        return {slot: frozenset(values) for slot, values in found.items()}

    @cached_property
    def letters(self) -> dict[str, int]:
        """Tokens by script: han (characters), latin, kana, hangul, cyrillic, …; code and numbers have none."""
        found: dict[str, int] = {}
        for token in self.tokens:
            if token.kind in (CODE, NUMBER, SIGN):
                continue
            name = "han" if token.kind == HAN else _script(token.text)
            found[name] = found.get(name, 0) + (len(token.text) if name == "han" else 1)
        return found

    def _reads(self, at: int, words: tuple[str, ...]) -> bool:
        return tuple(token.text for token in self.tokens[at : at + len(words)]) == words

    def _is_month(self, at: int) -> bool:
        """ "may" is a month when written "May" inside a sentence, or where only a month can stand."""
        token = self.tokens[at]
        before = self.tokens[at - 1].text if at else ""
        return (token.surface == "May" and not token.first) or before in (
            "in",
            "of",
            "next",
            "last",
            "since",
            "by",
            "until",
        )


# Where scripts begin; what lies between is none of those that are told apart.
_SCRIPTS: Final = (
    (0x0000, "latin"), (0x0370, "greek"), (0x0400, "cyrillic"), (0x0530, "armenian"), (0x0590, "hebrew"),
    (0x0600, "arabic"), (0x0780, "other"), (0x0900, "indic"), (0x0E00, "thai"), (0x0E80, "other"), (0x1100, "hangul"),
    (0x1200, "other"), (0x1E00, "latin"), (0x1F00, "greek"), (0x2000, "other"), (0x3040, "kana"), (0x3100, "other"),
    (0xAC00, "hangul"), (0xD7B0, "other"),
)  # fmt: skip


def _script(word: str) -> str:
    code = ord(word[0])
    return next(name for start, name in reversed(_SCRIPTS) if code >= start)


def _is_grammar(token: Token) -> bool:
    if token.kind == HAN:
        return token.text in chinese.FUNCTION or token.text in negation.CHINESE or _asks(token.text)
    return token.kind == WORD and (
        token.text in english.FUNCTION or token.text in negation.ENGLISH or token.text in _MARKS
    )


def _asks(word: str) -> bool:
    """是不是, 贵不贵: the token says that it is a question, and is content only by its first character."""
    return len(word) == 3 and word[0] == word[2] and word[1] in "不没"
