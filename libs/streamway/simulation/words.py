"""A simulated engine's events in OpenAI's words, for whoever shows them."""

from __future__ import annotations

from typing import Any

from streamway.simulation.sequence import Counted, Piece
from streamway.simulation.settings import Faults


def choice_extras(piece: Piece, *, logprobs: bool) -> dict[str, Any] | None:
    """`delta` and `logprobs` of a piece that is more than plain text, or None."""
    if piece.delta is not None:
        return {"delta": piece.delta}
    if logprobs and piece.text:
        return {"delta": {"content": piece.text}, "logprobs": {"content": [_logprob(piece.text)], "refusal": None}}
    return None


def usage(counted: Counted, faults: Faults) -> dict[str, Any] | None:
    """The usage object; None when the request's faults leave it out."""
    if faults.no_usage:
        return None
    return {
        "prompt_tokens": counted.prompt,
        "completion_tokens": counted.completion,
        "total_tokens": counted.prompt + counted.completion,
        "prompt_tokens_details": {"cached_tokens": counted.cached},
    }


def _logprob(text: str) -> dict[str, Any]:
    # The simulator draws from no distribution; −1/8 is as good as any and exact in binary.
    return {"token": text, "logprob": -0.125, "bytes": list(text.encode()), "top_logprobs": []}
