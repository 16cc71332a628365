"""How stream memory is shared."""

from __future__ import annotations

import pytest

from services.edge.core.buffer_share import RequestRoom, ShareRules, Shares, shares

MIB, KIB = 1024**2, 1024
RULES = ShareRules(512 * MIB, ceiling_bytes=256 * KIB)


@pytest.mark.parametrize(("rate", "output"), [(0.0, 0.3), (4.0, 0.4), (16.0, 0.7), (20.0, 0.7), (1000.0, 0.7)])
def test_output_gets_more_the_faster_the_mean_stream_is_up_to_seven_tenths(rate: float, output: float) -> None:
    found = shares(RULES, 100, 100 * rate)
    assert found.output == pytest.approx(output)
    assert found.request_bytes == pytest.approx(512 * MIB * (1 - output), abs=2)


@pytest.mark.parametrize(
    ("streams", "cap"),
    [(0, 256 * KIB), (1, 256 * KIB), (1433, 256 * KIB), (2867, 131_072), (10_000, 37_580), (200_000, 4096)],
)
def test_a_streams_cap_is_its_part_within_4_and_256_kib(streams: int, cap: int) -> None:
    assert shares(RULES, streams, streams * 20.0).stream_bytes == pytest.approx(cap, rel=0.001)


def test_the_ceiling_counts_also_where_it_is_below_the_floor() -> None:
    assert shares(ShareRules(512 * MIB, ceiling_bytes=1000), 10, 0) == Shares(
        0.3, 1000, 512 * MIB - int(512 * MIB * 0.3)
    )


def test_requests_have_room_until_it_is_full_and_one_always_has() -> None:
    room = RequestRoom(1000)
    assert room.admits(5000), "the only one"
    room.held_bytes = 600
    assert room.admits(400)
    assert not room.admits(401)
    room.limit_bytes = 2000
    assert room.admits(401)
