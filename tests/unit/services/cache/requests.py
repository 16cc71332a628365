"""Requests and answers that the tests of the cache share."""

from __future__ import annotations

import json
from typing import Any

from streamway.v1 import common_pb2


def typed(text: str = "hi", *, model: str = "m", **more: Any) -> common_pb2.GenerationRequest:
    """A request with typed fields at temperature 0."""
    return common_pb2.GenerationRequest(
        model=model,
        messages=[common_pb2.Message(role="user", content=text)],
        sampling=more.pop("sampling", common_pb2.Sampling(temperature=0)),
        **more,
    )


def body(fields: dict[str, Any] | None = None, *, model: str = "m", raw: bytes | None = None, **more: Any) -> Any:
    """A request with an OpenAI body at temperature 0."""
    content = {"model": model, "messages": [{"role": "user", "content": "hi"}], "temperature": 0, **(fields or {})}
    return common_pb2.GenerationRequest(model=model, openai_body=raw or json.dumps(content).encode(), **more)


def answer(*texts: str, finish: str = "stop") -> list[common_pb2.Event]:
    """Every event of a generation."""
    events = [
        common_pb2.Event(position=1, accepted=common_pb2.Accepted(worker="w")),
        common_pb2.Event(position=2, epoch=9, started=common_pb2.Started(worker="w")),
    ]
    for text in texts:
        events.append(
            common_pb2.Event(position=events[-1].position + 1, epoch=9, token=common_pb2.Token(text=text, units=1))
        )
    events[-1].token.choice_finished.finish_reason = finish
    usage = common_pb2.Usage(prompt_tokens=3, completion_tokens=len(texts))
    finished = common_pb2.Finished(finish_reason=finish, usage=usage)
    events.append(common_pb2.Event(position=events[-1].position + 1, epoch=9, finished=finished))
    return events
