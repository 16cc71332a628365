"""What the router reads from a request: size, cacheability, admission."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.router.core.admission import crowded_limit, queue_limit, queue_position, refusal, retry_after_s
from services.router.core.body import look
from services.router.core.cacheable import qualifies
from services.router.core.estimate import prompt_bytes, wanted_of
from services.router.core.patience import Patience
from streamway.errors import GoingAway, Malformed, TooManyGenerations
from streamway.v1 import common_pb2
from streamway.v1.common_pb2 import CachePolicy
from tests.support.router_mesh import ask

MIB = 1024 * 1024


def _body(**fields: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": "x"}], **fields}).encode()


def _qualifies(request: common_pb2.GenerationRequest) -> bool:
    return qualifies(request, look(request.openai_body, MIB), MIB)


def test_tokens_are_prompt_plus_expected_output_of_all_choices() -> None:
    request = ask("x" * 400)
    assert prompt_bytes(request) == 400
    assert wanted_of(request, 400, None, 256).tokens == 101 + 256
    request.limits.max_tokens = 10
    assert wanted_of(request, 400, None, 256).tokens == 101 + 10
    request.sampling.n = 3
    assert wanted_of(request, 400, None, 256).tokens == 101 + 30
    request.limits.max_tokens = 9999
    assert wanted_of(request, 400, None, 256).tokens == 101 + 256 * 3


def test_a_body_alone_says_the_same() -> None:
    request = ask(openai_body=_body(max_completion_tokens=20, n=2))
    del request.messages[:]
    body = look(request.openai_body, MIB)
    assert wanted_of(request, prompt_bytes(request), body, 256).tokens == len(request.openai_body) // 4 + 1 + 40


@pytest.mark.parametrize("raw", [b"[]", b"{", b'{"n": "two"}', b'{"temperature": []}', b"\xff"])
def test_a_body_that_cannot_be_read_is_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed, match="openai_body"):
        look(raw, MIB)


def test_a_large_body_is_not_read() -> None:
    assert look(b"{" * 11, 10) is None
    assert look(b"", 10) is None


def test_typed_requests_qualify_when_the_draw_is_fixed() -> None:
    plain, cold, seeded = ask(), ask(), ask()
    cold.sampling.temperature = 0
    seeded.sampling.seed = 0
    assert [_qualifies(request) for request in (plain, cold, seeded)] == [False, True, True]
    warm = ask()
    warm.sampling.temperature = 0.7
    assert not _qualifies(warm)
    warm.cache = CachePolicy.CACHE_POLICY_EXACT
    assert _qualifies(warm)
    cold.cache = CachePolicy.CACHE_POLICY_OFF
    assert not _qualifies(cold)
    seeded.sampling.n = 2
    assert not _qualifies(seeded)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, False),
        ({"temperature": 0}, True),
        ({"temperature": 0.0, "tools": None}, True),
        ({"temperature": 0, "tools": []}, True),
        ({"temperature": 0, "tools": [{"type": "function"}]}, False),
        ({"temperature": 0, "functions": [{"name": "f"}]}, False),
        ({"seed": 1}, True),
        ({"seed": 1, "n": 1}, True),
        ({"seed": 1, "n": 2}, False),
    ],
)
def test_the_body_wins_where_there_is_one(fields: dict[str, Any], expected: bool) -> None:
    assert _qualifies(ask(openai_body=_body(**fields))) is expected


def test_large_requests_do_not_qualify() -> None:
    request = ask("x" * 2000)
    request.sampling.seed = 1
    assert not qualifies(request, None, 1000)


def test_admission() -> None:
    assert refusal(draining=False, live=9, most=10) is None
    assert isinstance(refusal(draining=False, live=10, most=10), TooManyGenerations)
    assert isinstance(refusal(draining=True, live=0, most=10), GoingAway)
    assert [queue_position(tasks, 4) for tasks in (0, 3, 4, 6)] == [0, 0, 1, 3]
    assert [retry_after_s(rate) for rate in (0, 100, 0.25, 0.001)] == [1, 1, 4, 30]


def test_patience_ends_after_a_row_of_late_answers_and_returns() -> None:
    patience = Patience(most_late=3, pause_s=1.0)
    for _ in range(2):
        patience.late(10)
    patience.answered()
    for _ in range(2):
        patience.late(10)
    assert patience.allows(10)
    patience.late(10)
    assert not patience.allows(10.9)
    assert patience.allows(11)
    patience.late(11)
    assert not patience.allows(11.5)


def test_a_queue_is_twice_the_depth_that_the_worker_reports_unless_it_is_set() -> None:
    assert [queue_limit(None, depth) for depth in (4, 16, 0)] == [8, 32, 8]
    assert queue_limit(3, 16) == 3


def test_a_queue_is_half_as_long_where_breakers_are_ignored() -> None:
    assert [crowded_limit(limit) for limit in (0, 1, 8, 9)] == [0, 1, 4, 5]
