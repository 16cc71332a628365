"""What is found out about engines that differ in one thing each."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from services.inference_adapter.backends.probing import Probing
from services.inference_adapter.core.capabilities import Capabilities
from services.inference_adapter.interfaces import EngineSink
from streamway.errors import EngineFailed, EngineRejected, StreamwayError
from streamway.journal import ChoiceSoFar
from streamway.models.abilities import Ability
from streamway.v1 import common_pb2

EVERYTHING = frozenset(Ability)
TRIED = EVERYTHING - {Ability.CACHE_SALT, Ability.KV_USE}
# Marks of a chat template around one more message.
MARKS = 5


class Call:
    """Nothing to stop."""

    def abort(self) -> None:
        """It has ended."""


@dataclass
class Engine:
    """Has every ability but `lacks`. `refuses`: it says so; else it takes the field and does nothing with it."""

    lacks: frozenset[Ability] = frozenset()
    refuses: bool = True
    breaks: StreamwayError | None = None
    silent: bool = False
    asked: list[dict[str, Any]] = field(default_factory=list)

    def call(self, request: common_pb2.GenerationRequest, sink: EngineSink, so_far: ChoiceSoFar | None) -> Call:
        body = json.loads(request.openai_body)
        self.asked.append(body)
        if not self.silent:
            asyncio.get_running_loop().call_soon(self._answer, body, sink, so_far.text if so_far else "")
        return Call()

    def _answer(self, body: dict[str, Any], sink: EngineSink, behind: str) -> None:
        if self.breaks is not None:
            sink.failed(self.breaks)
            return
        wanted = {
            Ability.LOGPROBS: body.get("logprobs"),
            Ability.GRAMMAR: body.get("response_format"),
            Ability.TOOLS: body.get("tools"),
            Ability.SEVERAL_CHOICES: body.get("n"),
            Ability.TOKEN_IDS: body.get("return_token_ids"),
            Ability.PRIORITY: body.get("urgency"),
        }
        asked = {ability for ability, value in wanted.items() if value}
        if self.refuses and asked & self.lacks:
            sink.failed(EngineRejected("unknown field", 400, ""))
            return
        does = asked - self.lacks
        sink.started()
        if Ability.TOOLS in does:
            sink.piece(0, "", raw_delta=b'{"delta":{"tool_calls":[{"function":{"name":"look"}}]}}')
        raw = b'{"delta":{"content":"x"},"logprobs":{"content":[{}]}}' if Ability.LOGPROBS in does else b""
        text = '{"word"' if Ability.GRAMMAR in does else "river"
        for choice in range(2 if Ability.SEVERAL_CHOICES in does else 1):
            ids = (7,) if Ability.TOKEN_IDS in does else ()
            sink.piece(choice, text, raw_delta=raw, finish_reason="length", token_ids=ids)
        more = 0
        if behind:
            more = len(behind.split()) + (MARKS if Ability.CONTINUES in self.lacks else 0)
        cached = 0 if Ability.CACHED_TOKENS in self.lacks else 32
        sink.ended(common_pb2.Usage(prompt_tokens=40 + more, completion_tokens=1, cached_prompt_tokens=cached))


async def found(engine: Engine, said: Capabilities | None = None, limit_s: float = 10) -> Capabilities:
    return await Probing(engine.call, "m", said or Capabilities(), "urgency").run(limit_s)


async def test_an_engine_that_can_do_everything_is_found_to() -> None:
    engine = Engine()
    known = await found(engine)
    assert known.can == known.tried == TRIED
    assert not known.cannot
    assert all(body["max_tokens"] <= 48 for body in engine.asked)


@pytest.mark.parametrize("refuses", [True, False])
@pytest.mark.parametrize("lacking", sorted(TRIED - {Ability.CACHED_TOKENS, Ability.PRIORITY}))
async def test_what_an_engine_refuses_or_ignores_is_found_out(lacking: Ability, refuses: bool) -> None:
    known = await found(Engine(frozenset({lacking}), refuses))
    assert known.cannot == {lacking}
    assert known.can == TRIED - {lacking}


async def test_a_priority_that_is_refused_is_not_sent_later() -> None:
    known = await found(Engine(frozenset({Ability.PRIORITY})))
    assert known.cannot == {Ability.PRIORITY}
    engine = Engine()
    await Probing(engine.call, "m", Capabilities()).run(10)
    assert not any("urgency" in body for body in engine.asked), "it has no such field"


async def test_no_cached_tokens_in_a_short_prompt_say_nothing() -> None:
    known = await found(Engine(frozenset({Ability.CACHED_TOKENS})))
    assert Ability.CACHED_TOKENS not in known.can | known.cannot


async def test_of_an_engine_that_breaks_stands_what_was_said() -> None:
    said = Capabilities(frozenset({Ability.TOOLS}), frozenset({Ability.LOGPROBS}))
    assert await found(Engine(breaks=EngineFailed("w-1", "it answered 500")), said) == said


async def test_an_engine_that_is_silent_is_not_waited_for() -> None:
    said = Capabilities(frozenset({Ability.TOOLS}))
    assert await found(Engine(silent=True), said, limit_s=0.05) == said
