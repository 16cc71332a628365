"""Which requests may be answered from the cache, which answers may be kept."""

from __future__ import annotations

from typing import Any

import pytest

from services.cache.core.eligibility import refuses_read, refuses_store
from streamway.cachekey.canonical import canonical_form
from streamway.v1 import common_pb2
from tests.unit.services.cache.requests import answer, body, typed

EXACT, OFF, UNSET = common_pb2.CACHE_POLICY_EXACT, common_pb2.CACHE_POLICY_OFF, common_pb2.CACHE_POLICY_UNSPECIFIED
TOOL = {"tools": [{"type": "function", "function": {"name": "f"}}]}


@pytest.mark.parametrize(
    ("fields", "policy", "refusal"),
    [
        ({}, UNSET, ""),
        ({"temperature": 0.7}, UNSET, "sampling"),
        ({"temperature": None}, UNSET, "sampling"),
        ({"temperature": False}, UNSET, "sampling"),
        ({"temperature": 0.7}, EXACT, ""),
        ({"temperature": 0.7, "seed": 0}, UNSET, ""),
        ({}, OFF, "policy_off"),
        ({"n": 2}, EXACT, "choices"),
        ({"n": 1}, UNSET, ""),
        (TOOL, EXACT, "tools"),
        ({"functions": [{"name": "f"}]}, EXACT, "tools"),
        ({"tool_choice": "none"}, EXACT, ""),
        ({"stream": True}, UNSET, ""),
        ({"messages": []}, EXACT, "no_messages"),
    ],
    ids=str,
)
def test_reading(fields: dict[str, Any], policy: Any, refusal: str) -> None:
    assert refuses_read(policy, canonical_form(body(fields))) == refusal


def test_typed_fields_count_like_the_body() -> None:
    warm = typed(sampling=common_pb2.Sampling(temperature=0.5))
    assert refuses_read(UNSET, canonical_form(warm)) == "sampling"
    assert refuses_read(UNSET, canonical_form(typed())) == ""
    assert refuses_read(UNSET, canonical_form(common_pb2.GenerationRequest(model="m"))) == "no_messages"


def stored(events: list[common_pb2.Event]) -> str:
    return refuses_store(events, sum(event.ByteSize() for event in events), 1024)


def test_a_whole_answer_that_ended_by_itself_is_kept() -> None:
    assert stored(answer("a", "b")) == ""
    assert stored(answer("a", "b")[1:]) == "", "accepted may be missing: the router made it"


@pytest.mark.parametrize("finish", ["length", "content_filter", "", "abort"])
def test_an_answer_that_was_cut_is_not_kept(finish: str) -> None:
    assert stored(answer("a", finish=finish)) == "not_finished"


def test_an_answer_without_its_end_or_with_a_gap_is_not_kept() -> None:
    whole = answer("a", "b", "c")
    assert stored(whole[:-1]) == "not_finished"
    assert stored(whole[:3] + whole[4:]) == "not_finished"
    assert stored(whole[2:]) == "not_finished"
    assert stored([]) == "not_finished"
    failed = [*whole[:-1], common_pb2.Event(position=6, error=common_pb2.Error())]
    assert stored(failed) == "not_finished"


def test_merged_events_tile() -> None:
    merged = answer("a", "b")
    merged[2].first_position, merged[2].position = 3, 5
    merged[3].position, merged[4].position = 6, 7
    assert stored(merged) == ""
    merged[3].first_position = 5
    assert stored(merged) == "not_finished", "ranges overlap"


def test_tool_calls_and_further_choices_are_not_kept() -> None:
    assert stored(answer("a", finish="tool_calls")) == "tool_calls"
    called = answer("a")
    called[2].token.raw_delta = b'{"delta":{"tool_calls":[]}}'
    assert stored(called) == "tool_calls"
    second = answer("a", "b")
    second[2].token.choice = 1
    assert stored(second) == "not_eligible"


def test_an_empty_answer_and_a_large_one_are_not_kept() -> None:
    empty = answer("a")
    del empty[2]
    empty[2].position = 3
    assert stored(empty) == "not_eligible"
    assert stored(answer("x" * 2000)) == "too_large"
