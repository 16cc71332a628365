"""How fast the engine has been of late."""

from __future__ import annotations

import pytest

from services.inference_adapter.core.engine_pace import EnginePace
from services.inference_adapter.core.estimate import estimated_tokens
from streamway.v1 import common_pb2


def test_nothing_is_known_before_a_call_has_ended() -> None:
    pace = EnginePace()
    assert (pace.prefill_ms, pace.slot_ms) == (0.0, 0.0)


def test_the_first_call_is_believed_and_later_ones_move_the_mean() -> None:
    pace = EnginePace()
    pace.ended(0.2, 1.0, 100)
    assert (pace.prefill_ms, pace.slot_ms) == (2.0, 1000.0)
    pace.ended(0.4, 2.0, 100)
    assert (pace.prefill_ms, pace.slot_ms) == (pytest.approx(2.2), pytest.approx(1100.0))
    for _ in range(100):
        pace.ended(0.1, 0.5, 100)
    assert (pace.prefill_ms, pace.slot_ms) == (pytest.approx(1.0, rel=0.01), pytest.approx(500.0, rel=0.01))


def test_a_prompt_that_was_in_kv_says_nothing_of_prefill() -> None:
    pace = EnginePace()
    pace.ended(0.05, 1.0, 31)
    assert (pace.prefill_ms, pace.slot_ms) == (0.0, 1000.0)


def test_the_routers_count_is_taken_over() -> None:
    request = common_pb2.GenerationRequest(messages=[common_pb2.Message(role="user", content="x" * 400)])
    assert estimated_tokens(request) == 100 + 256
    request.load_tokens = 7
    assert estimated_tokens(request) == 7
