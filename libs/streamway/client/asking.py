"""Requests as a program writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamway.runtime.ids import new_generation_id
from streamway.v1 import common_pb2

Message = Mapping[str, str]


def request_of(
    prompt: str | Sequence[Message],
    *,
    model: str,
    max_tokens: int | None = None,
    temperature: float | None = None,
    seed: int | None = None,
    stop: Sequence[str] = (),
    traceparent: str = "",
    **fields: Any,
) -> common_pb2.GenerationRequest:
    """A whole request, with an id of its own: asked for twice it is the same generation.

    `prompt` is one question, or messages as `{"role": …, "content": …}`. `fields` are those of `GenerationRequest`.
    """
    told: Sequence[Message] = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return common_pb2.GenerationRequest(
        generation=fields.pop("generation", "") or new_generation_id(),
        model=model,
        messages=[common_pb2.Message(**message) for message in told],
        sampling=common_pb2.Sampling(temperature=temperature, seed=seed),
        limits=common_pb2.Limits(max_tokens=max_tokens, stop=stop),
        traceparent=traceparent,
        **fields,
    )
