"""One call of a simulated engine and its sequences: what has been made, and what comes next."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from streamway.simulation.request import ChoicePlan, SimulationRequest
from streamway.simulation.settings import Faults
from streamway.simulation.text import StopMatcher

_ARGUMENT_WORDS: Final = 8
_NO_FAULTS: Final = Faults()


@dataclass(frozen=True, slots=True)
class Counted:
    """Tokens of one call, as its usage tells them."""

    prompt: int
    completion: int
    cached: int


@dataclass(slots=True, eq=False)
class SimulatedCall:
    """One call, from `submit` until its last sequence ended. `tag` is the caller's own."""

    request: SimulationRequest
    tag: Any
    sequences: list[Sequence] = field(default_factory=list)
    open: int = 0  # sequences that have not ended
    begun: bool = False
    completion_tokens: int = 0
    cached_tokens: int = 0

    @property
    def counted(self) -> Counted:
        return Counted(self.request.prompt_tokens, self.completion_tokens, self.cached_tokens)


@dataclass(slots=True)
class Piece:
    """Part of one choice. `delta` is set for what is not plain text: a tool call's part, in OpenAI's words."""

    call: SimulatedCall
    choice: int
    text: str
    delta: dict[str, Any] | None
    finish_reason: str


class Sequence:
    """One choice on its way through the engine. It decides what token comes next; the engine decides when."""

    __slots__ = (
        "_matcher",
        "_plan",
        "_tool_parts",
        "answer",
        "blocks",
        "call",
        "choice",
        "faulty",
        "hits",
        "made",
        "names",
        "over",
        "prefill_left",
        "ready_at",
    )

    def __init__(self, call: SimulatedCall, choice: int, plan: ChoicePlan) -> None:
        self.call, self.choice, self._plan = call, choice, plan
        self._matcher = StopMatcher(call.request.stops) if call.request.stops else None
        self._tool_parts = _tool_parts(call.request.tool, plan) if call.request.tool else None
        self.names: list[int] = []  # KV blocks of the prompt that it holds
        self.blocks = 0  # KV blocks beside them
        self.hits = 0  # how many of `names` were there already
        self.prefill_left = 0
        self.ready_at = 0.0  # it takes part in no step before
        self.made = 0
        self.over = False
        self.faulty = call.request.faults != _NO_FAULTS
        self.answer: list[str] = []

    @property
    def tokens(self) -> int:
        """How many tokens it will make at most."""
        return self._plan.tokens if self._tool_parts is None else min(self._plan.tokens, len(self._tool_parts))

    def next_piece(self) -> Piece | None:
        """Makes the next token. None when it shows nothing: a part of it may be the beginning of a stop string."""
        if self._tool_parts is not None:
            return self._next_tool_piece()
        plan = self._plan
        if self.made >= plan.tokens:  # an empty answer
            return Piece(self.call, self.choice, "", None, plan.finish_reason)
        text = plan.text.token(plan.place.index + self.made)
        if self.made == 0 and plan.place.offset:
            text = text[plan.place.offset :]
        self.made += 1
        self.call.completion_tokens += 1
        self.answer.append(text)
        finish = plan.finish_reason if self.made >= plan.tokens else ""
        if self._matcher is not None:
            text, stopped = self._matcher.feed(text)
            if stopped:
                finish = "stop"
            elif finish:
                text += self._matcher.end()
        return Piece(self.call, self.choice, text, None, finish) if text or finish else None

    def _next_tool_piece(self) -> Piece:
        assert self._tool_parts is not None
        part = self._tool_parts[self.made]
        self.made += 1
        self.call.completion_tokens += 1
        finish = ""
        if self.made == len(self._tool_parts):
            finish = "tool_calls"
        elif self.made >= self._plan.tokens:
            finish = "length"
        return Piece(self.call, self.choice, "", {"tool_calls": [part]}, finish)


def _tool_parts(name: str, plan: ChoicePlan) -> list[dict[str, Any]]:
    """A call of the function `name`, its arguments in pieces as an engine streams them."""
    words = plan.text.start(_ARGUMENT_WORDS)
    arguments = json.dumps({"text": words}, ensure_ascii=False)
    size = max(1, len(arguments) // _ARGUMENT_WORDS)
    pieces = [arguments[at : at + size] for at in range(0, len(arguments), size)]
    id_ = f"call_{plan.text.natural_tokens:06d}"
    first = {"index": 0, "id": id_, "type": "function", "function": {"name": name, "arguments": ""}}
    return [first, *({"index": 0, "function": {"arguments": piece}} for piece in pieces)]
