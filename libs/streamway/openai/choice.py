"""What an engine's choice says, from the events of a generation: one message, its tool calls and the rest put together."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from streamway.v1 import common_pb2

_decode: Final = msgspec.json.Decoder().decode


def raw_choice(token: common_pb2.Token) -> dict[str, Any]:
    """The engine's own choice object of a piece that is not plain text, with `delta` filled in. It came as JSON from an
    engine: whatever does not look like one becomes its text."""
    try:
        choice = _decode(token.raw_delta)
    except msgspec.MsgspecError:
        choice = {}
    if not isinstance(choice, dict):
        choice = {}
    delta = choice.get("delta")
    delta = dict(delta) if isinstance(delta, dict) else {}
    if token.text and not delta.get("content"):
        delta["content"] = token.text
    return {**choice, "delta": delta}


class Choice:
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

    def add(self, token: common_pb2.Token) -> None:
        """Adds one piece of this choice."""
        if token.raw_delta:
            raw = raw_choice(token)
            self.add_delta(raw.pop("delta"))
            self.add_logprobs(raw.pop("logprobs", None))
            raw.pop("index", None)
            raw.pop("finish_reason", None)
            self.extra.update(raw)
        elif token.text:
            self.texts.append(token.text)
        if token.HasField("choice_finished"):
            self.finish_reason = token.choice_finished.finish_reason

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

    def turn(self) -> dict[str, Any]:
        """The message as a client sends it back with its next turn: what the model said and called, not what it thought."""
        message = self.object(0)["message"]
        names = ("role", "content", "refusal", "tool_calls", "function_call")
        return {name: message[name] for name in names if name == "content" or message.get(name) is not None}

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
