"""The idempotency keys of one router's memory."""

from __future__ import annotations

from services.router.core.idempotency import Claim
from services.router.core.key_table import KeyTable, Seen


def _seen(generation: str) -> Seen:
    return Seen(Claim(generation, "digest"), durable=False, stored=False, worker="w", address="a:1")


def test_a_key_is_kept_for_its_time_and_as_long_as_it_runs() -> None:
    running = {"g1"}
    table = KeyTable(10, 600, running.__contains__)
    table.put("k1", _seen("g1"), 0)
    table.put("k2", _seen("g2"), 0)
    assert table.get("k2", 600) == _seen("g2")
    assert table.get("k2", 601) is None
    assert table.get("k1", 10_000) == _seen("g1")
    running.clear()
    assert table.get("k1", 10_000) is None
    assert len(table) == 0


def test_over_its_bound_the_oldest_goes() -> None:
    table = KeyTable(2, 600, lambda _: True)
    for number in (1, 2):
        table.put(f"k{number}", _seen(f"g{number}"), number)
    table.put("k1", _seen("g1"), 3)
    table.put("k3", _seen("g3"), 4)
    assert [table.get(f"k{number}", 5) is not None for number in (1, 2, 3)] == [True, False, True]


def test_only_the_generation_that_has_a_key_frees_it() -> None:
    table = KeyTable(2, 600, lambda _: False)
    table.put("k", _seen("g"), 0)
    table.drop("k", "another")
    assert table.get("k", 0) is not None
    table.drop("k", "g")
    assert table.get("k", 0) is None
