"""A question as it is meant, whatever the way it is typed: for answers to the same words in another case, width or script.

    "Hi, could you please explain What a Mutex is?"      "如何重置 密碼？謝謝！"
        ↓                                                    ↓
    "explain what a mutex is"                            "如何重置密码"

Off go case, width, punctuation at the ends of words, greetings and politeness; traditional characters become simplified. What may
be data, or is about words themselves, has no folded form: code, quotations, several lines, several turns, translations.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import Any, Final

from streamway.cachekey.canonical import encode
from streamway.cachekey.context import context_of, question_of
from streamway.cachekey.key import VERSION
from streamway.cachekey.simplified import SIMPLIFIED

# Raised whenever a text folds otherwise than before.
_FOLDING: Final = b"folded1"
# Longer ones are documents rather than questions.
MOST_CHARS: Final = 1000
_HAN: Final = "\u3400-\u4dbf\u4e00-\u9fff"
# Signs of code, formulas, markup and quoted text; controls, among them line ends; a factorial; a colon with something behind it.
_DATA: Final = re.compile(
    r"[`{}<>\[\]|\\=^~@#*/_\"“”„«»‹›「」『』﹁﹂\x00-\x1f\x7f-\x9f]|(?<!\w)['‘]|\(\)|--|(?:\d|\b\w)!|::|(?<!\d):(?=.*\w)|:(?!\d)(?=.*\w)"
)
# Who asks about words may mean their very case, width or politeness.
_ABOUT_WORDS: Final = re.compile(
    r"\b(?:translat\w+|say|spell\w*|pronounc\w+|rewrit\w+|rephras\w+|paraphras\w+|correct|proofread|grammar\w*|sentences?|words?|letters?"
    r"|characters?|capitali[sz]\w*|capitals|uppercase|lowercase|punctuation|commas?|apostrophes?|polite\w*|greetings?|regex\w*)\b"
    r"|翻译|怎么说|怎么写|怎么读|拼写|改写|润色|纠正|句子|词语|大写|小写|大小写|标点|逗号|全角|半角|繁体|简体|礼貌"
)
# Compatibility forms that are other numbers once they are plain: 2³ is not 23.
_OTHER_NUMBERS: Final = ("<super>", "<sub>", "<fraction>", "<circle>", "<square>", "<font>")
_APOSTROPHES: Final = str.maketrans("’ʼ", "''")
_IN_WORD: Final = rf"[^\W{_HAN}]"
# Punctuation at the ends of words: not that of 3.5, 1,000, don't, e-mail, 10:30, .NET, !x. NFKC has made the wide ones plain.
_MARKS: Final = re.compile(rf"[、。]+|[,;.:?!)]+(?!{_IN_WORD})|(?<!{_IN_WORD})[,;]+|(?<!{_IN_WORD})\((?=\w)")
_HAN_SPACE: Final = re.compile(rf"(?<=[{_HAN}])\s+|\s+(?=[{_HAN}])")
# Only with a comma or an end behind: "Hello world" greets nobody.
_GREETING: Final = re.compile(
    r"^(?:hi|hello|hey|good (?:morning|afternoon|evening)|您好|你好|大家好)(?: there)?\s*(?:[,!、。]+\s*|\.+\s+)"
)
_THANKS: Final = re.compile(
    r"[,.!?、。]\s*(?:please|thanks|thank you|thx|cheers|谢谢|多谢|感谢)"
    r"(?: a lot| very much| so much| in advance|您|你|啦|了)?[\s,.?!、。]*$"
)
_PLEASE: Final = re.compile(rf"^(?:(?:could|can|would|will) you )?(?:please|kindly)(?:,? (?=\S)|,?(?=[{_HAN}]))")
# What 请 stands before as "please": not 请假, 请教.
_ASKED: Final = "解释|说明|介绍|告诉|列出|列举|描述|总结|概括|推荐|比较|分析|给|帮|用|把|将|举"
_PLEASE_IN_CHINESE: Final = re.compile(
    rf"^(?:请问一下|请问|(?:麻烦|劳驾)请?[你您]?(?={_ASKED})|请[你您]?(?={_ASKED}))[,、]?\s*"
)


def folded(text: str) -> str:
    """The text without what does not change its meaning; empty for one that has to stay as it is."""
    if len(text) > MOST_CHARS or any(unicodedata.decomposition(each).startswith(_OTHER_NUMBERS) for each in text):
        return ""
    plain = _plain(text.strip())
    if _DATA.search(plain) or _ABOUT_WORDS.search(plain):
        return ""
    plain = _HAN_SPACE.sub("", " ".join(plain.split()))
    plain = _THANKS.sub("", _GREETING.sub("", plain))
    plain = _PLEASE_IN_CHINESE.sub("", _PLEASE.sub("", plain))
    return _HAN_SPACE.sub("", " ".join(_MARKS.sub(" ", plain).split()))


def folded_key(tenant: str, model: str, form: dict[str, Any]) -> bytes | None:
    """32 bytes, equal for questions of one context that fold to the same; None for a request without a folded form.

    `tenant` is the authenticated one, `model` the resolved one, `form` from `canonical_form`. Raises NotCanonical.
    """
    asked = [message for message in form.get("messages") or () if isinstance(message, dict)]
    if [message.get("role") for message in asked if message.get("role") not in ("system", "developer")] != ["user"]:
        return None
    question = folded(question_of(form))
    if not question:
        return None
    told = encode(tenant) + encode(model) + encode(context_of(form)) + encode(question)
    return hashlib.blake2b(VERSION + _FOLDING + told, digest_size=32).digest()


def _plain(text: str) -> str:
    """One width, one composition, one apostrophe, small letters, simplified characters.

    `lower` and not `casefold`: Maße are no Masse.
    """
    text = unicodedata.normalize("NFKC", text).lower().translate(_APOSTROPHES)
    return unicodedata.normalize("NFKC", text).translate(SIMPLIFIED)
