"""The text of a simulated answer: a function of prompt, seed and place, and of nothing else.

Token k of an answer depends on (key, k) alone, so that any worker makes the same text and can go on from any place in it.
Among English words there are characters of two, three and four UTF-8 bytes, and ones of several code points: text that is
cut at a wrong border anywhere on its way shows at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from xxhash import xxh3_64_intdigest

_LATIN: Final = (
    " the| a| river| light| and| of| to| over| under| model| stream| token| carries| answers| slowly| quickly| small| large"
    "| never| always| with| without| between| memory| engine| window| cache| quiet| bright| follows| returns| again| once"
    '| café| naïve| Zürich| déjà| señor| œuvre| e\u0301tude|.|,| –| “quoted”|;|\n| 42| 3.14| x²| \\n| "q"'
)
_OTHER: Final = (
    "河流|光|记忆|快|慢|很|的|是|，|。|、|数据|传输|你好|世界| Ωmega| данные| поток| 🌊| 🚀| 🙂| 👩\u200d🚀| 🇨🇭"
)
_WORDS: Final = (*_LATIN.split("|"), *_OTHER.split("|"))


@dataclass(frozen=True, slots=True)
class Place:
    """Where an answer goes on: at token `index`, of which the first `offset` characters are there already."""

    index: int
    offset: int


class AnswerText:
    """The answer to one prompt and seed, for one choice. `natural_tokens` is its length when no limit cuts it."""

    __slots__ = ("_key", "natural_tokens")

    def __init__(self, prompt: bytes, seed: int, choice: int, longest_tokens: int) -> None:
        variant = f"{seed}/{choice}/".encode()
        number = xxh3_64_intdigest(variant + prompt)
        self._key = number.to_bytes(8, "little")
        self.natural_tokens = longest_tokens - number % (longest_tokens // 2)

    def token(self, index: int) -> str:
        """Text of token `index`, counted from 0; never empty."""
        return _WORDS[xxh3_64_intdigest(self._key + index.to_bytes(8, "little")) % len(_WORDS)]

    def start(self, count: int) -> str:
        """Text of the first `count` tokens."""
        return "".join(map(self.token, range(count)))

    def locate(self, partial: str, limit_tokens: int) -> Place | None:
        """Where the answer goes on after `partial`, or None when it does not begin like that within `limit_tokens`."""
        done = 0
        for index in range(limit_tokens + 1):
            if done == len(partial):
                return Place(index, 0)
            if index == limit_tokens:
                return None
            token = self.token(index)
            rest = partial[done : done + len(token)]
            if not token.startswith(rest):
                return None
            if len(rest) < len(token):
                return Place(index, len(rest))
            done += len(token)
        return None


class StopMatcher:
    """Finds stop strings in text that comes in pieces; holds back what may turn out to be the beginning of one."""

    __slots__ = ("_held", "_stops")

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""

    def feed(self, text: str) -> tuple[str, bool]:
        """Text that can be shown, and whether a stop string was found; it and what follows are not shown."""
        if not self._stops:
            return text, False
        text = self._held + text
        found = min((at for stop in self._stops if (at := text.find(stop)) >= 0), default=-1)
        if found >= 0:
            self._held = ""
            return text[:found], True
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def end(self) -> str:
        """What was held back, when the answer ends otherwise."""
        rest, self._held = self._held, ""
        return rest


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that `stop` begins with."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
