"""Events of a generation as one OpenAI chat completion, for a request that does not stream."""

from __future__ import annotations

from typing import Any

from services.edge.core.openai_chunks import completion_id, raw_choice, truncation, usage_of
from streamway.v1 import common_pb2


class _Choice:
    """One choice while it grows."""

    __slots__ = ("extra", "finish_reason", "logprobs", "message", "reasoning", "texts", "tools")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.reasoning: dict[str, list[str]] = {}
        self.tools: dict[int, dict[str, Any]] = {}
        self.logprobs: dict[str, list[Any]] | None = None
        self.message: dict[str, Any] = {}
        self.extra: dict[str, Any] = {}
        self.finish_reason: str | None = None

    def add_delta(self, delta: dict[str, Any]) -> None:
        """Merges one delta: texts grow, tool calls grow by index, anything else takes its last value."""
        for name, value in delta.items():
            if value is None or name == "role":
                continue
            if name == "content" and isinstance(value, str):
                self.texts.append(value)
            elif name == "tool_calls" and isinstance(value, list):
                for call in value:
                    self._add_tool(call)
            elif isinstance(value, str):
                # reasoning_content, refusal, and what engines call their own
                self.reasoning.setdefault(name, []).append(value)
            elif isinstance(value, dict) and isinstance(self.message.get(name), dict):
                self.message[name] = _grown(self.message[name], value)
            else:
                self.message[name] = value

    def _add_tool(self, call: Any) -> None:
        if not isinstance(call, dict):
            return
        index = call.get("index")
        position = index if isinstance(index, int) else len(self.tools)
        part = {name: value for name, value in call.items() if name != "index"}
        known = self.tools.get(position)
        self.tools[position] = part if known is None else _grown(known, part)

    def add_logprobs(self, logprobs: Any) -> None:
        """Appends the lists `content` and `refusal` of a piece."""
        if not isinstance(logprobs, dict):
            return
        grown = self.logprobs = self.logprobs or {}
        for name, values in logprobs.items():
            if isinstance(values, list):
                grown.setdefault(name, []).extend(values)

    def object(self, index: int) -> dict[str, Any]:
        """The choice as OpenAI's clients read it."""
        text = "".join(self.texts)
        message: dict[str, Any] = {"role": "assistant", "content": text if text or not self.tools else None}
        message["refusal"] = None
        message.update(self.message)
        message.update({name: "".join(parts) for name, parts in self.reasoning.items()})
        if self.tools:
            message["tool_calls"] = [self.tools[position] for position in sorted(self.tools)]
        return {
            "index": index,
            "message": message,
            "logprobs": self.logprobs,
            "finish_reason": self.finish_reason,
            **self.extra,
        }


# What a tool call says once, even where an engine repeats it in each piece.
_NAMES = frozenset({"id", "type", "name"})


def _grown(known: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Joins two pieces of an object: texts are appended, objects joined, names kept."""
    joined = dict(known)
    for name, value in part.items():
        old = joined.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            joined[name] = _grown(old, value)
        elif isinstance(old, str) and isinstance(value, str) and old and name not in _NAMES:
            joined[name] = old + value
        elif value is not None and (value != "" or name not in joined):
            joined[name] = value
    return joined


class CompletionBuilder:
    """Collects one generation. `created` is Unix seconds."""

    def __init__(self, generation: str, model: str, created: int, choices: int) -> None:
        self._id = completion_id(generation)
        self._model = model
        self._created = created
        self._choices = {index: _Choice() for index in range(choices)}

    def token(self, event: common_pb2.Event) -> None:
        """Adds one piece."""
        token = event.token
        choice = self._choices.setdefault(token.choice, _Choice())
        if token.raw_delta:
            raw = raw_choice(token)
            choice.add_delta(raw.pop("delta"))
            choice.add_logprobs(raw.pop("logprobs", None))
            raw.pop("index", None)
            raw.pop("finish_reason", None)
            choice.extra.update(raw)
        elif token.text:
            choice.texts.append(token.text)
        if token.HasField("choice_finished"):
            choice.finish_reason = token.choice_finished.finish_reason

    def result(self, event: common_pb2.Event) -> dict[str, Any]:
        """The completion; `event` is the `finished` one."""
        usage = usage_of(event.finished.usage) if event.finished.HasField("usage") else None
        completion = {
            "id": self._id,
            "object": "chat.completion",
            "created": self._created,
            "model": self._model,
            "choices": [choice.object(index) for index, choice in sorted(self._choices.items())],
            "usage": usage,
        }
        if event.finished.truncated:
            completion["streamway"] = truncation(event.finished.truncated)
        return completion
