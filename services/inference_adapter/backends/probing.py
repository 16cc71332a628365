"""Finds out what an engine can do by asking it: a few calls of a few tokens when it is started.

Documentation says what an engine could do; how it was started, and the model's chat template, say what it does. So each of
these is tried with the very call that the work will make, and what comes back decides:

    one token, with log probabilities      refused, or none came: no log probabilities
    one token; behind a partial answer;    prompts of P, P+a, P+a+b tokens: where it goes on, a = b for a text and its double;
    and behind twice that                  where it begins another message instead, a is larger by the marks around it
    a schema                               an answer that does not begin with "{" was not made by a grammar
    a tool that must be called             text instead of a call: it does not know tools
    two choices, a priority                refused, or one choice came
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog

from services.inference_adapter.core.capabilities import Capabilities
from services.inference_adapter.interfaces import EngineCall, EngineSink
from streamway.errors import EngineRejected, StreamwayError
from streamway.journal.answer import ChoiceSoFar
from streamway.models.abilities import Ability
from streamway.v1 import common_pb2

Call = Callable[[common_pb2.GenerationRequest, EngineSink, ChoiceSoFar | None], EngineCall]
_log = structlog.get_logger("adapter")

# Longer than a KV block of 16 tokens, so that its repetition can be found in most prefix caches.
_PROMPT: Final = (
    "Please repeat these words for me, one after the other: river, light, stone, tree, wind, house, road, sea, sky."
)
_PARTIAL: Final = "river light stone tree"
# Marks around a message are at least two tokens; a text and its double may differ by one where they are joined.
_SEAM_TOKENS: Final = 1
_SCHEMA: Final = {
    "type": "json_schema",
    "json_schema": {
        "name": "probe",
        "schema": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}
_TOOL: Final = {
    "type": "function",
    "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}},
}


class _Unanswered(Exception):
    """The engine broke, which says nothing of what it can do."""


class Probing:
    """Asks one engine about one of its models. `call` is the backend's own; `priority` its field for that, or ""."""

    def __init__(self, call: Call, model: str, said: Capabilities, priority: str = "") -> None:
        self._call, self._model, self._priority = call, model, priority
        self._found: dict[Ability, bool] = {}
        self._said = said

    async def run(self, limit_s: float) -> Capabilities:
        """What was found within `limit_s` seconds; about the rest stands what was said."""
        try:
            async with asyncio.timeout(limit_s):
                for step in (
                    self._plain,
                    self._partial,
                    self._grammar,
                    self._tools,
                    self._choices,
                    self._ids,
                    self._queue,
                ):
                    await self._try(step)
        except TimeoutError:
            _log.warning("engine_slow_to_try", found=sorted(self._found))
        return self._said.found(self._found)

    async def _try(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except _Unanswered as problem:
            _log.warning("engine_not_tried", what=step.__name__.strip("_"), problem=str(problem))

    async def _plain(self) -> None:
        heard = await self._ask(logprobs=True)
        self._found[Ability.LOGPROBS] = heard.has("logprobs")

    async def _partial(self) -> None:
        before = await self._ask()
        once = await self._ask(behind=_PARTIAL)
        twice = await self._ask(behind=f"{_PARTIAL} {_PARTIAL}")
        if not before.refused and (once.refused or twice.refused):
            self._found[Ability.CONTINUES] = False
        elif before.usage is not None and once.usage is not None and twice.usage is not None:
            first = once.usage.prompt_tokens - before.usage.prompt_tokens
            second = twice.usage.prompt_tokens - once.usage.prompt_tokens
            self._found[Ability.CONTINUES] = second > 0 and abs(first - second) <= _SEAM_TOKENS
            if twice.usage.cached_prompt_tokens:
                self._found[Ability.CACHED_TOKENS] = (
                    True  # none found says nothing: its blocks may be larger than this prompt
                )

    async def _grammar(self) -> None:
        heard = await self._ask(max_tokens=8, response_format=_SCHEMA)
        self._found[Ability.GRAMMAR] = heard.text.lstrip().startswith("{")

    async def _tools(self) -> None:
        heard = await self._ask(stop_at_first=True, max_tokens=48, tools=[_TOOL], tool_choice="required")
        if heard.refused or heard.text.strip() or heard.has("tool_calls"):
            self._found[Ability.TOOLS] = heard.has("tool_calls")

    async def _choices(self) -> None:
        heard = await self._ask(n=2, temperature=1)  # some refuse several equal ones
        self._found[Ability.SEVERAL_CHOICES] = heard.choices == {0, 1}

    async def _ids(self) -> None:
        heard = await self._ask(return_token_ids=True)
        self._found[Ability.TOKEN_IDS] = heard.token_ids

    async def _queue(self) -> None:
        if self._priority:
            more: dict[str, Any] = {self._priority: 1}
            heard = await self._ask(**more)
            self._found[Ability.PRIORITY] = not heard.refused

    async def _ask(self, *, behind: str = "", stop_at_first: bool = False, max_tokens: int = 1, **more: Any) -> _Heard:
        """One call until its end. Raises _Unanswered where the engine breaks."""
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": _PROMPT}],
            "max_tokens": max_tokens,
            "temperature": 0,
            **more,
        }
        request = common_pb2.GenerationRequest(model=self._model, openai_body=json.dumps(body).encode())
        heard = _Heard(stop_at_first=stop_at_first)
        call = self._call(request, heard, ChoiceSoFar(text=behind) if behind else None)
        try:
            await heard.over.wait()
        finally:
            call.abort()
        if heard.error is not None and not isinstance(heard.error, EngineRejected):
            raise _Unanswered(heard.error.message)
        return heard


class _Heard(EngineSink):
    """An `EngineSink` that keeps what a probe needs."""

    def __init__(self, *, stop_at_first: bool) -> None:
        self._stop_at_first = stop_at_first
        self.over = asyncio.Event()
        self.text = ""
        self.token_ids = False
        self.choices: set[int] = set()
        self.usage: common_pb2.Usage | None = None
        self.error: StreamwayError | None = None
        self._raw: list[Any] = []

    @property
    def refused(self) -> str:
        """Why the engine did not answer; empty when it did."""
        return self.error.message if self.error is not None else ""

    def has(self, field: str) -> bool:
        """Some piece of the answer had this beside, or inside, its delta."""
        return any(raw.get(field) or (raw.get("delta") or {}).get(field) for raw in self._raw)

    # EngineSink

    def started(self) -> None:
        """What counts is what it says."""

    def piece(
        self,
        choice: int,
        text: str,
        *,
        raw_delta: bytes = b"",
        finish_reason: str = "",
        token_ids: tuple[int, ...] = (),
    ) -> None:
        self.text += text
        self.token_ids = self.token_ids or bool(token_ids)
        if raw_delta:
            self._raw.append(json.loads(raw_delta))
        if finish_reason:
            self.choices.add(choice)
        if self._stop_at_first and (text.strip() or self.has("tool_calls")):
            self.over.set()

    def ended(self, usage: common_pb2.Usage | None) -> None:
        self.usage = usage
        self.over.set()

    def failed(self, error: StreamwayError) -> None:
        self.error = error
        self.over.set()
