"""A model's file is read before an engine is started with it."""

from __future__ import annotations

import pytest

from services.inference_adapter.core.gguf import BadModelFile, parse
from tests.support.gguf_file import gguf

LLAMA = {
    "general.architecture": "llama",
    "llama.block_count": 30,
    "llama.context_length": 8192,
    "llama.embedding_length": 576,
    "llama.attention.head_count": 9,
    "llama.attention.head_count_kv": 3,
    "tokenizer.ggml.tokens": ["a", "b", "c"],
}
TENSORS = [("a", (64,), 0), ("b", (8, 4), 256)]


def test_the_size_of_a_token_in_kv_is_found() -> None:
    found = parse(gguf(LLAMA, TENSORS))
    assert (found.architecture, found.context_tokens, found.vocabulary) == ("llama", 8192, 3)
    # 30 layers, 3 heads of 64, keys and values, 2 bytes each.
    assert found.kv_token_bytes == 30 * 3 * (64 + 64) * 2


def test_heads_may_differ_by_layer_and_in_size() -> None:
    pairs = {**LLAMA, "llama.attention.head_count_kv": [1, 0, 4], "llama.attention.key_length": 128}
    assert parse(gguf(pairs)).kv_token_bytes == (1 + 0 + 4) * (128 + 64) * 2


def test_a_model_without_attention_tells_nothing() -> None:
    assert parse(gguf({"general.architecture": "other"})).kv_token_bytes == 0


def test_long_vocabularies_are_only_counted() -> None:
    assert parse(gguf({**LLAMA, "tokenizer.ggml.tokens": ["x"] * 5000})).vocabulary == 5000


@pytest.mark.parametrize("missing", [1, 100, 383])
def test_a_file_whose_tensors_end_early_is_cut_short(missing: int) -> None:
    whole = gguf(LLAMA, TENSORS)
    with pytest.raises(BadModelFile, match=f"{len(whole) - missing:,} bytes of {len(whole):,}: it is cut short"):
        parse(whole[:-missing])


def test_every_shorter_header_is_cut_short() -> None:
    whole = gguf(LLAMA, TENSORS)
    for size in range(4, len(whole)):
        with pytest.raises(BadModelFile, match="cut short"):
            parse(whole[:size])


def test_other_weights_have_another_fingerprint() -> None:
    one, same, other = gguf(LLAMA, TENSORS), gguf(LLAMA, TENSORS), bytearray(gguf(LLAMA, TENSORS))
    other[-1] ^= 1
    assert parse(one).fingerprint == parse(same).fingerprint
    assert parse(bytes(other)).fingerprint != parse(one).fingerprint


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"PK\3\4" + bytes(64), "does not begin"),
        (b"GGUF" + b"\x09" + bytes(64), "version 9"),
        (b"GGUF\3\0\0\0" + b"\xff" * 64, "damaged"),
        (gguf({"x": "y"}).replace(b"\x08\0\0\0", b"\x63\0\0\0"), "unknown type 99"),
    ],
)
def test_what_is_no_model_is_told(data: bytes, says: str) -> None:
    with pytest.raises(BadModelFile, match=says):
        parse(data)
