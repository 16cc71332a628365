"""Events of a generation as one OpenAI chat completion, for a request that does not stream."""

from __future__ import annotations

from typing import Any

from services.edge.core.openai_chunks import completion_id, truncation, usage_of
from streamway.openai import Choice
from streamway.v1 import common_pb2


class CompletionBuilder:
    """Collects one generation. `created` is Unix seconds."""

    def __init__(self, generation: str, model: str, created: int, choices: int) -> None:
        self._id = completion_id(generation)
        self._model = model
        self._created = created
        self._choices = {index: Choice() for index in range(choices)}

    def token(self, event: common_pb2.Event) -> None:
        """Adds one piece."""
        self._choices.setdefault(event.token.choice, Choice()).add(event.token)

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
