"""The key holds everything that can change the answer, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from streamway.cachekey.canonical import NotCanonical, canonical_form, encode
from streamway.cachekey.key import IGNORED, IN_KEY, exact_key
from streamway.v1 import common_pb2
from tests.unit.services.cache.requests import body, typed


def key(request: common_pb2.GenerationRequest, tenant: str = "t") -> bytes:
    return exact_key(tenant, request.model, canonical_form(request))


def test_every_field_of_the_request_is_in_the_key_or_on_the_ignore_list() -> None:
    fields = {field.name for field in common_pb2.GenerationRequest.DESCRIPTOR.fields}
    assert fields == IN_KEY | IGNORED, "decide for the new field: can it change the answer?"
    assert not IN_KEY & IGNORED


def leaves(descriptor: Descriptor, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for field in descriptor.fields:
        if not path and field.name in IGNORED | {"tenant", "openai_body"}:
            continue
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            found += leaves(field.message_type, (*path, field.name))
        else:
            found.append((*path, field.name))
    return found


@pytest.mark.parametrize("path", leaves(common_pb2.GenerationRequest.DESCRIPTOR), ids=".".join)
def test_each_typed_field_and_nested_field_changes_the_key(path: tuple[str, ...]) -> None:
    plain = typed()
    changed = common_pb2.GenerationRequest()
    changed.CopyFrom(plain)
    holder: Any = changed
    for name in path[:-1]:
        holder = getattr(holder, name)
        if hasattr(holder, "add"):
            holder = holder[0]
    field = holder.DESCRIPTOR.fields_by_name[path[-1]]
    if field.is_repeated:
        getattr(holder, path[-1]).append("new")
    else:
        setattr(holder, path[-1], "new" if field.type == FieldDescriptor.TYPE_STRING else 7)
    assert key(changed) != key(plain)


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_an_ignored_field_does_not_change_the_key(name: str) -> None:
    changed = typed()
    field = changed.DESCRIPTOR.fields_by_name[name]
    if name == "metadata":
        changed.metadata["a"] = "b"
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        getattr(changed, name).SetInParent()
    else:
        setattr(changed, name, "new" if field.type == FieldDescriptor.TYPE_STRING else 1)
    assert key(changed) == key(typed())


def test_tenants_never_share_a_key() -> None:
    assert key(typed(), "a") != key(typed(), "b")


def test_a_body_and_typed_fields_that_say_the_same_have_one_key() -> None:
    sampling = common_pb2.Sampling(temperature=0.7, seed=5, top_p=0.9)
    fields = typed(sampling=sampling, limits=common_pb2.Limits(max_tokens=10, stop=["b", "a"]))
    as_body = body({"temperature": 0.7, "seed": 5, "top_p": 0.9, "max_tokens": 10, "stop": ["a", "b"]})
    assert key(fields) == key(as_body)


def test_the_body_wins_over_typed_fields() -> None:
    both = body()
    both.messages.add(role="user", content="something else")
    assert key(both) == key(body())


@pytest.mark.parametrize(
    "same",
    [
        {"stream": True, "stream_options": {"include_usage": True}},
        {"user": "u", "metadata": {"a": "b"}, "prompt_cache_key": "k", "safety_identifier": "s"},
        {"n": 1, "presence_penalty": 0, "frequency_penalty": 0.0, "logprobs": False, "stop": None},
        {"tools": [], "logit_bias": {}, "stop": [], "response_format": None},
        {"temperature": 0.0},
        {"temperature": -0.0},
        {"model": "an alias of the resolved one"},
    ],
    ids=str,
)
def test_what_cannot_change_the_answer_does_not_change_the_key(same: dict[str, Any]) -> None:
    assert key(body(same)) == key(body())


@pytest.mark.parametrize(
    "different",
    [
        {"temperature": 1},
        {"temperature": None},
        {"top_p": 1},
        {"n": True},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"response_format": {"type": "json_object"}},
        {"something_nobody_knows_yet": 1},
        {"stop": "x"},
        {"seed": 0},
        {"messages": [{"role": "system", "content": "hi"}]},
        {"messages": [{"role": "user", "content": "hi "}]},
        {"messages": [{"role": "user", "content": "hi", "name": "n"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]},
    ],
    ids=str,
)
def test_what_can_change_the_answer_changes_the_key(different: dict[str, Any]) -> None:
    assert key(body(different)) != key(body())


def test_text_counts_in_nfc_and_with_plain_line_ends_and_is_otherwise_exact() -> None:
    assert key(typed("é\r\nx")) == key(typed("e\u0301\nx"))
    parts = [{"type": "text", "text": "e\u0301\r\n"}]
    assert key(body({"messages": [{"role": "user", "content": parts}]})) == key(
        body({"messages": [{"role": "user", "content": [{"text": "é\n", "type": "text"}]}]})
    )
    assert key(body({"stop": ["\r\n"]})) != key(body({"stop": ["\n"]})), "a stop text is matched byte by byte"
    assert key(typed("A")) != key(typed("a"))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"not json",
        b'{"temperature": NaN}',
        b'{"temperature": -Infinity}',
        b'{"temperature": 1e999}',
        b'{"a": 1, "a": 2}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a": ' + b"[" * 80 + b"]" * 80 + b"}",
        b'{"a": ' + b"9" * 5_000 + b"}",
        b"\xff\xfe",
    ],
    ids=lambda raw: raw[:30].decode(errors="replace"),
)
def test_what_has_no_one_meaning_has_no_key(raw: bytes) -> None:
    with pytest.raises(NotCanonical):
        exact_key("t", "m", canonical_form(common_pb2.GenerationRequest(model="m", openai_body=raw or b"null")))


def test_nan_in_a_typed_field_is_refused() -> None:
    with pytest.raises(NotCanonical):
        key(typed(sampling=common_pb2.Sampling(temperature=float("nan"))))


def test_separators_inside_values_do_not_meet() -> None:
    assert exact_key("a:b", "c", {}) != exact_key("a", "b:c", {})
    assert encode(["ab", "c"]) != encode(["a", "bc"])
    assert encode("1") != encode(1)
    assert encode([]) != encode({})
    assert encode(True) != encode(1)
    assert encode(None) != encode(False)


def test_numbers_are_one_number_whatever_they_are_written_like() -> None:
    assert encode(1) == encode(1.0)
    assert encode(0) == encode(-0.0)
    assert encode(10**400) != encode(10**400 + 1)
    assert encode(0.1) != encode(0.2)
