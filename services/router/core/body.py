"""What the router reads from an original OpenAI body: a handful of fields, and nothing of the conversation."""

from __future__ import annotations

import msgspec

from streamway.errors import Malformed


class Body(msgspec.Struct):
    """Fields of a chat completion request that decide about caching and load. Absent and null are the same."""

    n: int | None = None
    temperature: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    tools: msgspec.Raw = msgspec.Raw()
    functions: msgspec.Raw = msgspec.Raw()
    response_format: msgspec.Raw = msgspec.Raw()
    logprobs: msgspec.Raw = msgspec.Raw()

    @property
    def output_limit(self) -> int | None:
        """Most tokens of one choice."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def has_tools(self) -> bool:
        """The model may call something."""
        return any(bytes(raw) not in (b"", b"null", b"[]") for raw in (self.tools, self.functions))

    @property
    def has_format(self) -> bool:
        """The answer must be JSON, of a schema or any."""
        raw = bytes(self.response_format)
        return raw not in (b"", b"null") and b'"text"' not in raw

    @property
    def has_logprobs(self) -> bool:
        """It asks for log probabilities."""
        return bytes(self.logprobs) == b"true"


_decoder = msgspec.json.Decoder(Body)


def look(body: bytes, limit_bytes: int) -> Body | None:
    """The fields of a body; None when there is none, or it is larger than `limit_bytes`: it is then not read at all.

    Raises Malformed when it is not a JSON object or one of the fields has a wrong type.
    """
    if not body or len(body) > limit_bytes:
        return None
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as problem:
        raise Malformed("openai_body", str(problem)) from None
