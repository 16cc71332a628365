"""A response while it grows, and as the object that OpenAI's clients read."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from services.edge.core.openai_chunks import truncation
from services.edge.core.responses_request import Echo
from streamway.errors import Cancelled, GenerationNotFound, StreamwayError, from_status
from streamway.openai import raw_choice
from streamway.runtime.shapes import is_generation_id
from streamway.v1 import common_pb2

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
_PREFIX: Final = "resp_"
# Why an answer that ended well is not whole.
_CUT: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}


def response_id(generation: str) -> str:
    """OpenAI's spelling of a generation's id."""
    return _PREFIX + generation


def generation_of(response: str) -> str:
    """The generation behind a response's id. Raises GenerationNotFound."""
    generation = response.removeprefix(_PREFIX)
    if generation == response or not is_generation_id(generation):
        raise GenerationNotFound(response)
    return generation


class Problem(Struct, frozen=True):
    """Why a response failed."""

    reason: str
    message: str
    http: int


class Outcome(Struct, frozen=True, omit_defaults=True):
    """How a response ended: all that is kept of it. `position` is that of its last event."""

    status: Status
    text: str = ""
    position: int = 0
    spoken: bool = False
    cut: str | None = None
    usage: dict[str, Any] | None = None
    problem: Problem | None = None
    truncated: str = ""


class ResponseState:
    """Collects one response. `durable`: what it was told is also in the store, so an error without a position is the
    reader's own and not the response's end."""

    __slots__ = (
        "_texts",
        "cut",
        "durable",
        "echo",
        "generation",
        "position",
        "problem",
        "spoken",
        "status",
        "truncated",
        "usage",
    )

    def __init__(self, generation: str, echo: Echo) -> None:
        self.generation = generation
        self.echo = echo
        self.status: Status = "queued"
        self.position = 0
        self.spoken = False  # there is an output item
        self.durable = True
        self.cut: str | None = None
        self.usage: dict[str, Any] | None = None
        self.problem: Problem | None = None
        self.truncated = ""
        self._texts: list[str] = []

    @classmethod
    def ended_as(cls, generation: str, echo: Echo, outcome: Outcome) -> ResponseState:
        """A response that ended earlier."""
        state = cls(generation, echo)
        state.status, state.position, state.spoken = outcome.status, outcome.position, outcome.spoken
        state.cut, state.usage, state.problem = outcome.cut, outcome.usage, outcome.problem
        state.truncated = outcome.truncated
        state._texts = [outcome.text]
        return state

    @property
    def text(self) -> str:
        """The answer so far."""
        if len(self._texts) > 1:
            self._texts = ["".join(self._texts)]
        return self._texts[0] if self._texts else ""

    @property
    def ended(self) -> bool:
        """Nothing changes any more."""
        return self.status not in ("queued", "in_progress")

    @property
    def outcome(self) -> Outcome:
        """How it ended, to be kept."""
        return Outcome(
            self.status, self.text, self.position, self.spoken, self.cut, self.usage, self.problem, self.truncated
        )

    def token(self, event: common_pb2.Event) -> str:
        """Takes one piece; returns its plain text. Per-token path."""
        self.position = event.position
        self.spoken = True
        if self.status == "queued":
            self.status = "in_progress"
        token = event.token
        text = token.text
        if token.raw_delta and not text:
            content = raw_choice(token)["delta"].get("content")
            text = content if isinstance(content, str) else ""
        if text:
            self._texts.append(text)
        return text

    def begun(self, event: common_pb2.Event) -> None:
        """An engine works on it."""
        self.position = event.position
        self.working()

    def working(self) -> None:
        """It makes its answer."""
        if self.status == "queued":
            self.status = "in_progress"

    def accepted(self, event: common_pb2.Event) -> None:
        """The mesh has it; with an idempotency key it may be an earlier one that it has."""
        self.position = max(self.position, event.position)
        accepted = event.accepted
        self.durable = accepted.durability != common_pb2.DURABILITY_OFF
        self.generation = accepted.attached_to or self.generation

    def finished(self, event: common_pb2.Event) -> None:
        """It ended well, or was cut."""
        self.position = event.position
        self.spoken = True
        self.cut = _CUT.get(event.finished.finish_reason)
        self.truncated = event.finished.truncated
        self.status = "incomplete" if self.cut else "completed"
        if event.finished.HasField("usage"):
            self.usage = _usage(event.finished.usage)

    def failed(self, event: common_pb2.Event) -> StreamwayError:
        """It ended badly, or, where the event has no position and the store has more, only this reading of it did."""
        error = from_status(event.error.status)
        if event.position or not self.durable:
            self.position = event.position or self.position + 1
            self.status = "cancelled" if isinstance(error, Cancelled) else "failed"
            if self.status == "failed":
                self.problem = Problem(error.name, error.message, error.row.http)
        return error

    def object(self) -> dict[str, Any]:
        """The response as OpenAI's clients read it."""
        echo = self.echo
        beside = {"streamway": truncation(self.truncated)} if self.truncated else {}
        return {
            **beside,
            "id": response_id(self.generation),
            "object": "response",
            # A generation's id begins with the milliseconds of its making (UUIDv7).
            "created_at": int(self.generation.replace("-", "")[:12], 16) // 1000,
            "status": self.status,
            "background": echo.background,
            "error": self._error(),
            "incomplete_details": {"reason": self.cut} if self.cut else None,
            "instructions": echo.instructions,
            "max_output_tokens": echo.max_output_tokens,
            "metadata": echo.metadata,
            "model": echo.model,
            "output": [self.item()] if self.spoken else [],
            "parallel_tool_calls": False,
            "previous_response_id": echo.previous_response_id,
            "prompt_cache_key": echo.prompt_cache_key,
            "safety_identifier": echo.safety_identifier,
            "store": echo.store,
            "temperature": echo.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": "none",
            "tools": [],
            "top_p": echo.top_p,
            "truncation": "disabled",
            "usage": self.usage,
            "user": echo.user,
        }

    @property
    def item_id(self) -> str:
        """Id of the one output item."""
        return f"msg_{self.generation}"

    def item(self) -> dict[str, Any]:
        """The one output item: a message with one part."""
        status = {"queued": "in_progress", "in_progress": "in_progress", "completed": "completed"}
        return {
            "id": self.item_id,
            "type": "message",
            "role": "assistant",
            "status": status.get(self.status, "incomplete"),
            "content": [self.part()],
        }

    def part(self) -> dict[str, Any]:
        """The one part of the message."""
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": []}

    def _error(self) -> dict[str, Any] | None:
        problem = self.problem
        if problem is None:
            return None
        code = "rate_limit_exceeded" if problem.http == 429 else "server_error"
        if 400 <= problem.http < 429:
            code = "invalid_prompt"
        # OpenAI's codes are few; `type` has the reason of errors.md.
        return {"code": code, "message": problem.message, "type": problem.reason}


def _usage(usage: common_pb2.Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_prompt_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        **({"cost": usage.cost} if usage.HasField("cost") else {}),
    }


encode_outcome: Final = msgspec.json.Encoder().encode
decode_outcome: Final = msgspec.json.Decoder(Outcome).decode
