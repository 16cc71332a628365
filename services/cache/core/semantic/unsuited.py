"""Questions that only the same request may answer: what they ask for changes by the hour, or with who asks."""

from __future__ import annotations

import re
from typing import Final, Literal

Unsuited = Literal["", "empty", "too_long", "volatile", "personal"]

# Longer texts are documents with a question somewhere in them: their vector says what they are about, not what is asked.
MOST_CHARS: Final = 2000

_VOLATILE: Final = re.compile(
    r"\b(?:today|tonight|now|currently|latest|newest|right now|yesterday|tomorrow|this (?:week|month|year|morning)"
    r"|news|weather|forecast|stock price|exchange rate|score)\b"
    r"|今天|今晚|现在|目前|最新|昨天|明天|本周|这周|本月|今年|新闻|天气|股价|汇率|比分",
    re.IGNORECASE,
)
_PERSONAL: Final = re.compile(
    r"\b(?:my|mine) (?:account|order|orders|balance|invoice|bill|booking|reservation|subscription|card|ticket|data|name"
    r"|address|email|phone|appointment|prescription|results?|salary|tax|taxes)\b"
    r"|\bwho am i\b|我的(?:账户|账号|帐户|帐号|订单|余额|发票|账单|预订|预约|会员|卡|票|数据|名字|地址|邮箱|电话|病历|工资|税)",
    re.IGNORECASE,
)


def unsuited(question: str) -> Unsuited:
    """Why a question is not compared with others; empty when it is."""
    if not question.strip():
        return "empty"
    if len(question) > MOST_CHARS:
        return "too_long"
    if _VOLATILE.search(question):
        return "volatile"
    return "personal" if _PERSONAL.search(question) else ""
