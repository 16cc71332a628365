"""What kind of prompt a request has: the label of `streamway_llm_inference_duration_seconds`."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from services.inference_adapter.core.estimate import estimated_prompt
from streamway.v1 import common_pb2

# From so many estimated tokens on the reading of the prompt is what takes the time.
_LONG_TOKENS: Final = 2048
_ANSWERS: Final = frozenset({"assistant", "tool"})


class PromptType(StrEnum):
    """The first that fits, in this order."""

    LONG = "long"
    TOOLS = "tools"
    STRUCTURED = "structured"
    MULTI_TURN = "multi_turn"
    SINGLE_TURN = "single_turn"


def prompt_type(request: common_pb2.GenerationRequest) -> PromptType:
    """Looks at the original body for the names of its fields only: it was read as a whole when it was let in."""
    body = request.openai_body
    if estimated_prompt(request) >= _LONG_TOKENS:
        return PromptType.LONG
    if b'"tools"' in body:
        return PromptType.TOOLS
    if b'"response_format"' in body or b'"guided_' in body or b'"grammar"' in body:
        return PromptType.STRUCTURED
    if any(message.role in _ANSWERS for message in request.messages) or b'"assistant"' in body:
        return PromptType.MULTI_TURN
    return PromptType.SINGLE_TURN
