"""How many tokens a request may cost, before anybody has counted them."""

from __future__ import annotations

from typing import Final

from streamway.v1 import common_pb2

# Four bytes of text make about one token of English, fewer of most other languages.
_BYTES_PER_TOKEN: Final = 4
_EXPECTED_OUTPUT: Final = 256


def estimated_prompt(request: common_pb2.GenerationRequest) -> int:
    """Tokens of the prompt."""
    return (sum(len(message.content) for message in request.messages) or len(request.openai_body)) // _BYTES_PER_TOKEN


def estimated_tokens(request: common_pb2.GenerationRequest) -> int:
    """What the router counts it with. Else tokens of prompt and answer, which counts with its limit, at most 256 a choice."""
    if request.load_tokens:
        return request.load_tokens
    limits = request.limits
    expected = min(limits.max_tokens, _EXPECTED_OUTPUT) if limits.HasField("max_tokens") else _EXPECTED_OUTPUT
    return estimated_prompt(request) + expected * max(1, request.sampling.n)
