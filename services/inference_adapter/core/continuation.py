"""Whether another engine call can honestly go on with an answer that a lost worker began.

A continued answer is a valid sample, not the one that was lost. Where it would not even be that, or nobody can tell, the
answer ends with a refusal instead: a text that looks whole and is not is worse than one that says where it stops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import msgspec

from streamway.journal.answer import ChoiceSoFar
from streamway.v1 import common_pb2


class Why(Enum):
    """Why an answer can't be continued; the name is a metric's label, the value is told to people."""

    SEVERAL_CHOICES = "engines continue one choice, and this request asks for several"
    STRUCTURED = "its grammar or format would begin anew in the middle"
    NOT_PLAIN_TEXT = "it holds more than plain text, a tool call for instance"
    LOGPROBS = "log probabilities of a continued text are others"
    PENALTIES = "penalties count what the engine itself has made"
    ENGINE = "this engine begins an answer anew instead of going on with one"
    STOP_STRING = "its end may be the beginning of a stop string"


@dataclass(frozen=True, slots=True)
class Fresh:
    """Nothing of the answer was kept: the call starts from the beginning, which is always honest."""


@dataclass(frozen=True, slots=True)
class Continue:
    """The engine goes on behind this text."""

    choice: ChoiceSoFar


@dataclass(frozen=True, slots=True)
class Complete:
    """The answer is whole, only its end is missing: no engine is needed. `tokens` of all choices, as far as is known.

    `unsaid`: the finish reason itself was lost and must be told.
    """

    finish_reason: str
    tokens: int
    unsaid: bool = False


@dataclass(frozen=True, slots=True)
class Refuse:
    """It can't be continued."""

    why: Why


Decision = Fresh | Continue | Complete | Refuse

_GRAMMARS: Final = (
    "grammar",
    "json_schema",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
    "structural_tag",
)
_PENALTIES: Final = ("presence_penalty", "frequency_penalty")


def made_tokens(choice: ChoiceSoFar) -> int:
    """Tokens of a choice: the engine's own count where it told ids, else one for each piece."""
    return max(len(choice.token_ids), choice.units)


def judge(
    request: common_pb2.GenerationRequest, choices: Mapping[int, ChoiceSoFar], *, continues: bool = True
) -> Decision:
    """What becomes of a request whose answer so far is `choices`. `continues`: this engine goes on with a text."""
    asked = _asked(request)
    wanted = _count(asked.get("n"))
    if not any(choice.text or choice.finish_reason or not choice.plain for choice in choices.values()):
        return Fresh()
    if len(choices) == wanted and all(choice.finish_reason for choice in choices.values()):
        return Complete(choices[min(choices)].finish_reason, sum(map(made_tokens, choices.values())))
    choice = choices.get(0, ChoiceSoFar())
    why = _refusal(asked, wanted, choices, choice)
    if why is not None:
        return Refuse(why)
    limit = limit_of(asked)
    if limit is not None and made_tokens(choice) >= limit:
        return Complete("length", made_tokens(choice), unsaid=True)
    return Continue(choice) if continues else Refuse(Why.ENGINE)


def choices_of(request: common_pb2.GenerationRequest) -> int:
    """How many choices a request asks for."""
    return _count(_asked(request).get("n"))


def limit_of(asked: Mapping[str, Any]) -> int | None:
    """Most tokens that a request in OpenAI's words allows."""
    for name in ("max_completion_tokens", "max_tokens"):
        value = asked.get(name)
        if isinstance(value, int):
            return value
    return None


def _refusal(
    asked: Mapping[str, Any], wanted: int, choices: Mapping[int, ChoiceSoFar], choice: ChoiceSoFar
) -> Why | None:
    if wanted > 1 or len(choices) > 1 or _count(asked.get("best_of")) > 1 or asked.get("use_beam_search"):
        return Why.SEVERAL_CHOICES
    if asked.get("logprobs") or asked.get("top_logprobs"):
        return Why.LOGPROBS
    if not choice.plain:
        return Why.NOT_PLAIN_TEXT
    if _structured(asked):
        return Why.STRUCTURED
    if any(asked.get(name) for name in _PENALTIES):
        return Why.PENALTIES
    if any(_may_begin(stop, choice.text) for stop in _stops(asked.get("stop"))):
        return Why.STOP_STRING
    return None


def _structured(asked: Mapping[str, Any]) -> bool:
    format_ = asked.get("response_format")
    if format_ is not None and not (isinstance(format_, dict) and format_.get("type") == "text"):
        return True
    if asked.get("tools") and asked.get("tool_choice") not in (None, "auto", "none"):
        return True
    return any(asked.get(name) is not None for name in _GRAMMARS)


def _stops(stop: Any) -> list[str]:
    found = [stop] if isinstance(stop, str) else stop if isinstance(stop, list) else []
    return [one for one in found if isinstance(one, str)]


def _may_begin(stop: str, text: str) -> bool:
    """Whether the end of `text` could be the first part of `stop`: the engine that goes on would not see that part."""
    return any(text.endswith(stop[:size]) for size in range(1, len(stop)))


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 1


def _asked(request: common_pb2.GenerationRequest) -> dict[str, Any]:
    """The request in OpenAI's words, as far as this decision reads them."""
    if request.openai_body:
        try:
            return msgspec.json.decode(request.openai_body, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return {}  # no engine has taken it, so there is nothing to continue
    sampling, limits = request.sampling, request.limits
    asked: dict[str, Any] = {field.name: value for field, value in sampling.ListFields()}
    asked["stop"] = list(limits.stop)
    if limits.HasField("max_tokens"):
        asked["max_tokens"] = limits.max_tokens
    return asked
