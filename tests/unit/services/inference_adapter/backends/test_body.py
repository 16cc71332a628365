"""How an engine is asked to go on with an answer."""

from __future__ import annotations

import json
from typing import Any

from services.inference_adapter.backends.openai_http.body import OurFields, build
from services.inference_adapter.backends.openai_http.profiles import VLLM
from streamway.journal import ChoiceSoFar
from streamway.v1 import common_pb2

HI = {"role": "user", "content": "Hi."}
SO_FAR = ChoiceSoFar(text="Good mor", units=3)


def rest_of(body: dict[str, Any], **options: Any) -> dict[str, Any]:
    request = common_pb2.GenerationRequest(model="m", openai_body=json.dumps(body).encode())
    made: dict[str, Any] = json.loads(build(request, "m", so_far=SO_FAR, **options))
    return made


def test_the_text_is_the_last_message_and_the_limit_is_lower() -> None:
    made = rest_of({"messages": [HI], "max_tokens": 10, "temperature": 0.5}, continue_by=VLLM.continue_by)
    assert made["messages"] == [HI, {"role": "assistant", "content": "Good mor"}]
    assert (made["max_tokens"], made["temperature"]) == (7, 0.5)
    assert (made["continue_final_message"], made["add_generation_prompt"]) == (True, False)


def test_an_engine_that_sees_it_by_itself_is_told_nothing() -> None:
    made = rest_of({"messages": [HI], "max_completion_tokens": 4})
    assert made["max_completion_tokens"] == 1
    assert "continue_final_message" not in made
    assert "max_tokens" not in made


def test_an_answer_that_the_client_began_stays_one_message() -> None:
    made = rest_of({"messages": [HI, {"role": "assistant", "content": "Well. "}]})
    assert made["messages"][-1] == {"role": "assistant", "content": "Well. Good mor"}
    assert len(made["messages"]) == 2


def test_typed_fields_go_on_as_a_body_does() -> None:
    request = common_pb2.GenerationRequest(model="m")
    request.messages.add(role="user", content="Hi.")
    request.limits.max_tokens = 10
    made = json.loads(build(request, "m", so_far=SO_FAR, continue_by=VLLM.continue_by))
    assert made["messages"] == [HI, {"role": "assistant", "content": "Good mor"}]
    assert made["max_tokens"] == 7
    assert made["continue_final_message"] is True


def test_without_a_beginning_nothing_changes() -> None:
    request = common_pb2.GenerationRequest(model="m", openai_body=json.dumps({"messages": [HI]}).encode())
    assert json.loads(build(request, "m"))["messages"] == [HI]


def test_what_is_the_meshs_to_set_stands_in_place_of_the_clients() -> None:
    made = rest_of({"messages": [HI], "priority": -1000}, ours=OurFields({"priority": -5}, "", "a"))
    assert made["priority"] == -5
    request = common_pb2.GenerationRequest(model="m")
    assert json.loads(build(request, "m", ours=OurFields({"priority": 3}, "", "a")))["priority"] == 3


def test_no_tenant_gets_at_the_kv_of_another_by_its_own_salt() -> None:
    def salt(tenant: str, *own: str) -> str:
        body = {"messages": [HI], **({"cache_salt": own[0]} if own else {})}
        request = common_pb2.GenerationRequest(model="m", openai_body=json.dumps(body).encode())
        made: str = json.loads(build(request, "m", ours=OurFields({}, "cache_salt", tenant)))["cache_salt"]
        return made

    salts = {salt("a"), salt("b"), salt("a", "x"), salt("b", "x"), salt("b", salt("a"))}
    assert len(salts) == 5
    assert salt("a") == salt("a")
    typed = common_pb2.GenerationRequest(model="m")
    assert json.loads(build(typed, "m", ours=OurFields({}, "cache_salt", "a")))["cache_salt"] == salt("a")
