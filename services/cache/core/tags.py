"""What an entry can be found by to be removed, and who asked for it: from what a request says of itself."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from streamway.v1 import common_pb2

MOST_TAGS: Final = 8
MOST_CHARS: Final = 64


def tags_of(request: common_pb2.GenerationRequest) -> tuple[str, ...]:
    """`user:…` and `prompt:…` of the metadata's `user` and `prompt_version`, then each of its `cache_tags`, which has commas.

    An OpenAI body has metadata of its own, and a user. What is longer than `MOST_CHARS` is no tag, and what is beyond
    `MOST_TAGS` is left out.
    """
    told = _told(request)
    found = [
        f"{kind}:{told[name]}" for kind, name in (("user", "user"), ("prompt", "prompt_version")) if told.get(name)
    ]
    found += [tag.strip() for tag in told.get("cache_tags", "").split(",")]
    return tuple(dict.fromkeys(tag for tag in found if 0 < len(tag) <= MOST_CHARS))[:MOST_TAGS]


def caller_of(tags: tuple[str, ...]) -> str:
    """The user that a tenant says it asks for; empty where it says nothing."""
    return next((tag for tag in tags if tag.startswith("user:")), "")


class _Body(msgspec.Struct):
    user: Any = None
    safety_identifier: Any = None
    metadata: Any = None


def _told(request: common_pb2.GenerationRequest) -> dict[str, str]:
    told = dict(request.metadata)
    if request.openai_body:
        try:
            body = msgspec.json.decode(request.openai_body, type=_Body)
        except msgspec.DecodeError:
            return told
        if isinstance(body.metadata, dict):
            told |= {name: value for name, value in body.metadata.items() if isinstance(value, str)}
        user = body.safety_identifier or body.user
        if isinstance(user, str):
            told["user"] = user
    return told
