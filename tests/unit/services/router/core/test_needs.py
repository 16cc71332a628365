"""Which workers' engines a request can do with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.router.core.body import look
from services.router.core.needs import TO_GO_ON, needs, unfit
from services.router.core.worker import Worker
from streamway.models.abilities import Ability
from streamway.v1 import common_pb2

TOOL = {"type": "function", "function": {"name": "f"}}


def worker(id_: str, cannot: str = "") -> Worker:
    models = json.dumps([{"name": "m"}])
    return Worker.parse(id_, {"address": "a:1", "models": models, "slots": "4", "cannot": cannot})


def needed(**body: Any) -> frozenset[Ability]:
    request = common_pb2.GenerationRequest(model="m", openai_body=json.dumps(body).encode())
    return needs(request, look(request.openai_body, 1000))


@pytest.mark.parametrize(
    ("body", "abilities"),
    [
        ({}, set()),
        ({"tools": [TOOL]}, {Ability.TOOLS}),
        ({"tools": []}, set()),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, {Ability.GRAMMAR}),
        ({"response_format": {"type": "text"}}, set()),
        ({"response_format": None, "logprobs": None}, set()),
        ({"logprobs": True, "n": 2}, {Ability.LOGPROBS, Ability.SEVERAL_CHOICES}),
        ({"logprobs": False, "n": 1}, set()),
    ],
)
def test_what_a_request_asks_for_beside_text(body: dict[str, Any], abilities: set[Ability]) -> None:
    assert needed(**body) == abilities


def test_typed_fields_ask_for_several_choices() -> None:
    request = common_pb2.GenerationRequest(model="m")
    assert needs(request, None) == frozenset()
    request.sampling.n = 3
    assert needs(request, None) == {Ability.SEVERAL_CHOICES}


def test_who_is_known_not_to_do_it_is_unfit() -> None:
    workers = [worker("a", "tools logprobs"), worker("b"), worker("c", "continues")]
    assert unfit(workers, {Ability.TOOLS}) == {"a"}
    assert unfit(workers, TO_GO_ON) == {"c"}
    assert unfit(workers, {Ability.GRAMMAR}) == frozenset()
    assert unfit(workers, frozenset()) == frozenset()


def test_where_nobody_can_none_is_unfit_and_the_engine_says_why_it_refuses() -> None:
    assert unfit([worker("a", "tools"), worker("b", "tools grammar")], {Ability.TOOLS}) == frozenset()
