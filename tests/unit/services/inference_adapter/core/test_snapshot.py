from __future__ import annotations

import pytest

from services.inference_adapter.core.snapshot import MOST_CONTEXT_BYTES, Snapshot, pack, read, unpack


def test_a_snapshot_is_read_as_it_was_written() -> None:
    snapshot = Snapshot(worker="w", at_ms=5, prefix="ab", prompt_tokens=7, sampling={"temperature": 0.7, "seed": 3})
    assert read(snapshot.encode()) == snapshot


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b'{"worker": 1}', b"\xff"])
def test_what_is_none_is_none(raw: bytes) -> None:
    assert read(raw) is None


def test_a_context_is_packed_within_its_bound() -> None:
    context = b"the same again " * 1000
    packed = pack(context, 4096)
    assert packed is not None
    assert len(packed) < len(context) / 10
    assert unpack(packed) == context
    assert pack(context, len(packed) - 1) is None
    assert pack(b"", 4096) is None
    assert pack(b"x" * (MOST_CONTEXT_BYTES + 1), MOST_CONTEXT_BYTES) is None


@pytest.mark.parametrize("packed", [b"", b"abc", b"\x05\x00\x00\x00", b"\xff\xff\xff\x7fabc", b"\x00\x00\x00\x00"])
def test_what_says_it_is_huge_or_is_garbage_is_not_unpacked(packed: bytes) -> None:
    assert unpack(packed) is None
