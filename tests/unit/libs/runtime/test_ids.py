"""Ids have the shape that the protos promise."""

from __future__ import annotations

import time
import uuid

import pytest

from streamway.runtime.address import host_port
from streamway.runtime.clock import SystemClock
from streamway.runtime.ids import is_generation_id, new_epoch, new_generation_id, new_secret_id


def test_a_generation_id_is_a_uuid_of_version_7_and_tells_its_time() -> None:
    before = time.time_ns() // 1_000_000
    text = new_generation_id()
    after = time.time_ns() // 1_000_000
    value = uuid.UUID(text)
    assert is_generation_id(text)
    assert (value.version, value.variant) == (7, uuid.RFC_4122)
    assert before <= value.int >> 80 <= after


def test_ids_do_not_repeat_and_sort_by_millisecond() -> None:
    ids = [new_generation_id() for _ in range(2000)]
    assert len(set(ids)) == len(ids)
    assert [id_[:13] for id_ in ids] == sorted(id_[:13] for id_ in ids)


@pytest.mark.parametrize(
    "text", ["", "x", "0192D8A1-0000-7000-8000-000000000000", "0192d8a1000070008000000000000000", " " * 36]
)
def test_other_spellings_are_not_ids(text: str) -> None:
    assert not is_generation_id(text)


def test_an_epoch_carries_its_attempt_and_is_never_used_twice() -> None:
    epochs = [new_epoch(3) for _ in range(50)]
    assert {epoch >> 20 for epoch in epochs} == {3}
    assert len(set(epochs)) > 45
    assert new_epoch(2) > max(new_epoch(1) for _ in range(100))


def test_a_secret_id_is_128_bits() -> None:
    assert len(bytes.fromhex(new_secret_id())) == 16


def test_the_system_clock_is_the_machines() -> None:
    clock = SystemClock()
    assert abs(clock.unix() - time.time()) < 5
    assert clock.monotonic() <= clock.monotonic()


def test_ipv6_addresses_get_brackets() -> None:
    assert host_port("127.0.0.1", 1) == "127.0.0.1:1"
    assert host_port("::1", 1) == "[::1]:1"
    assert host_port("[::1]", 1) == "[::1]:1"
