"""Whatever is in a file, its reader gives a model or says what is wrong."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from services.inference_adapter.core.gguf import BadModelFile, parse
from tests.support.gguf_file import gguf

WHOLE = gguf({"general.architecture": "llama", "llama.block_count": 2, "t": ["a", "b"]}, [("w", (8,), 0)])


@given(st.binary(max_size=200))
def test_any_bytes_are_a_model_or_one_error(data: bytes) -> None:
    for given_bytes in (data, b"GGUF\3\0\0\0" + data):
        with contextlib.suppress(BadModelFile):
            parse(given_bytes)


@given(st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=8))
def test_a_damaged_file_is_a_model_or_one_error(at: int, damage: bytes) -> None:
    with contextlib.suppress(BadModelFile):
        parse(WHOLE[:at] + damage + WHOLE[at + len(damage) :])
