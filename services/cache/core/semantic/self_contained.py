"""Questions that say all they ask about: what was said before them changes no answer, as far as their words can tell.

"How much is the visitor one?" needs the turns before it; "Is the gym in Leeds open on Christmas Day?" does not. Nothing in a
question proves that, so it is asked for much: one sentence, at least four words that carry meaning, and none that points
elsewhere. And an answer that repeats a number or a name of the turns before belongs to those.
"""

from __future__ import annotations

import re
from typing import Any, Final

from services.cache.core.vetoes.tables.words import words
from services.cache.core.vetoes.text import Text
from services.cache.core.vetoes.tokens import CODE, NUMBER, WORD

_LEAST_CONTENT: Final = 4
_SEVERAL: Final = re.compile(r"[.!?;][\"')\]”’]*\s+\S|[。！？；][\"')\]”’」』]*[^\s\"')\]”’」』]")
_POINTING: Final = words(
    "it its this that these those they them their theirs there here he him his she her hers then one ones same other others"
    " another else instead again also too yes yeah yep nope ok okay sure thanks now still back next both either neither mine"
    " yours ours we us our previous former latter above below earlier before already"
)
# As they are written, also in what is quoted as code.
_WRITTEN: Final = re.compile(r"[a-z]+")
_BEGINS: Final = words(
    "and but or so then also plus no well fine great cool right cheers perfect lovely alright anyway because"
)
_POINTING_CHINESE: Final = re.compile(
    r"[它他她这那此其]|刚才|刚刚|上面|前面|以上|之前|上述|同样|一样|另外|其他|其它|别的|还有|继续|好的|可以的|是的|对的|第[一二三]个|呢[？?]?$"
)


def is_self_contained(question: str) -> bool:
    """See the module."""
    if _SEVERAL.search(question.strip()) or _POINTING_CHINESE.search(question):
        return False
    text = Text(question)
    said = [token.text for token in text.tokens]
    if len(text.content) < _LEAST_CONTENT or said[0] in _BEGINS:
        return False
    return _POINTING.isdisjoint(said) and _POINTING.isdisjoint(_WRITTEN.findall(question.lower()))


def repeats_before(answer: str, form: dict[str, Any]) -> bool:
    """The answer has a number, an identifier or a name that the turns before its question have and the question has not.

    `form` is the canonical one of the request.
    """
    *before, question = (_text(message) for message in form["messages"])
    if not Text(" ".join((*before, answer))).whole:
        return True
    told = _marks(" ".join(before)) - _marks(question)
    return not told.isdisjoint(_marks(answer))


def _marks(text: str) -> set[str]:
    """Numbers, identifiers and words that are written as names."""
    return {
        token.text
        for token in Text(text).tokens
        if token.kind in (NUMBER, CODE) or (token.kind == WORD and not token.first and token.surface[:1].isupper())
    }


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        content = " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
