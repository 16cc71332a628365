"""How long first tokens took of late."""

from __future__ import annotations

from services.inference_adapter.core.first_tokens import FirstTokens


def test_the_p99_is_of_each_model_and_of_the_last_minute() -> None:
    waits = FirstTokens()
    assert waits.p99_ms("m", 0) == 0
    for number in range(100):
        waits.note("m", (number + 1) / 1000, 10)
    waits.note("n", 5, 10)
    assert (waits.p99_ms("m", 11), waits.p99_ms("n", 11)) == (99, 5000)
    waits.note("m", 7, 60)
    assert waits.p99_ms("m", 70) == 100, "a minute old counts"
    assert waits.p99_ms("m", 70.1) == 7000
    assert waits.p99_ms("m", 121) == 0, "left alone it is quick again"


def test_only_the_newest_count() -> None:
    waits = FirstTokens()
    for _ in range(10):
        waits.note("m", 9, 1)
    for _ in range(256):
        waits.note("m", 0.5, 2)
    assert waits.p99_ms("m", 3) == 500
