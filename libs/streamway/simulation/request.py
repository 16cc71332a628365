"""What a simulated engine is asked, out of the JSON body of a chat completion."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import msgspec
from pydantic import ValidationError

from streamway.simulation.kv import tokens_in
from streamway.simulation.settings import Faults, SimulationSettings
from streamway.simulation.text import AnswerText, Place

_encode: Final = msgspec.json.Encoder(order="sorted").encode


class Refused(Exception):
    """The engine answers with an HTTP status instead of a stream. `code` is OpenAI's word for it. `retry_after_s` 0: not said."""

    def __init__(
        self, status: int, message: str, code: str = "invalid_request_error", field: str = "", retry_after_s: int = 0
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.field = status, message, code, field
        self.retry_after_s = retry_after_s

    def body(self) -> dict[str, Any]:
        """The error in OpenAI's shape."""
        error = {"message": self.message, "type": self.code, "code": self.code, "param": self.field or None}
        return {"error": error}


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


class _Body(msgspec.Struct):
    messages: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)]
    model: str = ""
    stream: bool = False
    stream_options: _StreamOptions | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=16)] | None = 1
    seed: int | None = None
    stop: str | list[str] | None = None
    logprobs: bool | None = False
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    streamway_faults: dict[str, Any] | None = None


_body: Final = msgspec.json.Decoder(_Body)


@dataclass(frozen=True, slots=True)
class ChoicePlan:
    """One choice: its text, where it begins, how many tokens it will make and why it ends then."""

    text: AnswerText
    place: Place
    tokens: int
    finish_reason: str


@dataclass(frozen=True, slots=True)
class SimulationRequest:
    """One call of the engine, checked. `prompt` is everything the model reads, as bytes.

    `made_tokens` of the answer were made by an earlier call; their text is the last `continued_tokens` of the prompt.
    """

    prompt: bytes
    prompt_tokens: int
    choices: tuple[ChoicePlan, ...]
    stops: tuple[str, ...]
    stream: bool
    include_usage: bool
    logprobs: bool
    tool: str
    faults: Faults
    made_tokens: int = 0
    continued_tokens: int = 0


def read(body: bytes, settings: SimulationSettings) -> SimulationRequest:
    """Reads and checks a body. Raises Refused."""
    try:
        asked = _body.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise Refused(400, str(problem), field=_field_of(str(problem))) from None
    faults = _faults(asked.streamway_faults, settings.faults)
    if faults.status:
        code = "server_error" if faults.status >= 500 else "invalid_request_error"
        why = faults.message or f"the simulated engine was told to answer {faults.status}"
        raise Refused(faults.status, why, code, retry_after_s=faults.retry_after_s)
    if asked.model and asked.model != settings.model:
        raise Refused(404, f"The model `{asked.model[:100]}` does not exist.", "model_not_found", "model")
    for message in asked.messages:
        if not isinstance(message.get("role"), str):
            raise Refused(400, "each message needs a role", field="messages")
    prompt = _prompt(asked.messages)
    prompt_tokens = tokens_in(prompt)
    room = min(settings.context_tokens, settings.kv_tokens // (asked.n or 1) - settings.block_tokens) - prompt_tokens
    if room < 1:
        raise Refused(
            400,
            f"This model's maximum context length is {settings.context_tokens} tokens, but the messages have {prompt_tokens}.",
            "context_length_exceeded",
            "messages",
        )
    limit = asked.max_completion_tokens or asked.max_tokens
    choices = tuple(_plan(asked, prompt, choice, limit, room, faults, settings) for choice in range(asked.n or 1))
    stops = (asked.stop,) if isinstance(asked.stop, str) else tuple(asked.stop or ())
    return SimulationRequest(
        prompt,
        prompt_tokens,
        choices,
        tuple(stop for stop in stops if stop),
        asked.stream,
        asked.stream_options is not None and asked.stream_options.include_usage,
        bool(asked.logprobs),
        _tool(asked),
        faults,
    )


def continued(request: SimulationRequest, text: str, limit_tokens: int) -> SimulationRequest:
    """The rest of a request's one choice behind `text`, which an earlier call has made. Raises Refused when it never did."""
    plan = request.choices[0]
    before = plan.text.start(plan.place.index) + plan.text.token(plan.place.index)[: plan.place.offset]
    place = plan.text.locate(before + text, limit_tokens)
    if place is None:
        raise Refused(400, "the answer never began like that", field="messages")
    made = place.index - plan.place.index
    rest = ChoicePlan(plan.text, place, max(0, plan.tokens - made), plan.finish_reason)
    prompt = request.prompt + b"\x02assistant\x03" + text.encode()
    prompt_tokens = tokens_in(prompt)
    return replace(
        request,
        prompt=prompt,
        prompt_tokens=prompt_tokens,
        choices=(rest,),
        made_tokens=made,
        continued_tokens=prompt_tokens - request.prompt_tokens,
    )


def _plan(
    asked: _Body, prompt: bytes, choice: int, limit: int | None, room: int, faults: Faults, settings: SimulationSettings
) -> ChoicePlan:
    seed = asked.seed or 0
    text, place = AnswerText(prompt, seed, choice, settings.answer_tokens), Place(0, 0)
    partial = asked.messages[-1].get("content")
    if asked.messages[-1].get("role") == "assistant" and isinstance(partial, str) and len(asked.messages) > 1:
        # The beginning of an answer: the key is that of the prompt without it, so that the text goes on as it would have.
        original = AnswerText(_prompt(asked.messages[:-1]), seed, choice, settings.answer_tokens)
        found = original.locate(partial, settings.context_tokens)
        if found is not None:
            text, place = original, found
    allowed = min(room, limit or room)
    if faults.answer_tokens >= 0:
        natural = max(0, faults.answer_tokens - place.index)
    elif limit is None:
        natural = max(0, text.natural_tokens - place.index)
    else:
        # A limit is made use of in full: benchmarks and tests then know how many tokens they get.
        natural = allowed
    if natural < allowed or natural == 0:
        return ChoicePlan(text, place, natural, "stop")
    return ChoicePlan(text, place, allowed, "length")


def _prompt(messages: list[dict[str, Any]]) -> bytes:
    """Everything the model reads. A longer conversation begins with the bytes of the shorter one, as KV prefixes need it."""
    parts: list[bytes] = []
    for message in messages:
        content = message.get("content")
        rest = {name: value for name, value in message.items() if name not in {"role", "content"} and value is not None}
        parts.append(b"\x02" + str(message["role"]).encode() + b"\x03" + (_encode(rest) if rest else b""))
        parts.append(content.encode() if isinstance(content, str) else _encode(content))
    return b"".join(parts)


def _tool(asked: _Body) -> str:
    """Name of the function that the answer must call; empty: it may answer with text."""
    choice = asked.tool_choice
    if not asked.tools or choice in (None, "auto", "none"):
        return ""
    wanted = _function_name(choice) if isinstance(choice, dict) else ""
    names = [_function_name(tool) for tool in asked.tools]
    if not all(names):
        raise Refused(400, "each tool needs a function with a name", field="tools")
    if wanted and wanted not in names:
        raise Refused(400, f"tool_choice names {wanted[:100]!r}, which is not among the tools", field="tool_choice")
    return wanted or names[0]


def _function_name(tool: dict[str, Any]) -> str:
    function = tool.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else ""


def _faults(asked: dict[str, Any] | None, default: Faults) -> Faults:
    if asked is None:
        return default
    try:
        return Faults.model_validate({**default.model_dump(), **asked})
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Refused(400, f"streamway_faults.{where}: {first['msg']}", field="streamway_faults") from None


def _field_of(problem: str) -> str:
    """msgspec ends its messages with the path: "… - at `$.max_tokens`"."""
    path = problem.rpartition("`$.")[2]
    return path.rstrip("`").split(".")[0].split("[")[0] if "`$." in problem else ""
