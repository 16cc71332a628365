"""What a GGUF file says of its model, before any engine reads it: how large it must be, and what a token costs in KV.

    "GGUF" version tensors pairs │ pair … │ tensor: name, shape, type, offset … │ padding │ data
                                                                                 ▲ aligned; offsets count from here

The layout is that of ggml's specification of the format, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_MOST_PAIRS: Final = 1 << 16
_MOST_TENSORS: Final = 1 << 20
_MOST_SHAPE: Final = 8
_MOST_DEPTH: Final = 4
# Of an array no more values than these are kept, only counted: vocabularies are long, heads by layer are not.
_MOST_KEPT: Final = 4096
_ALIGNMENT: Final = 32
# What a fingerprint looks at of the data.
_SAMPLES: Final = 64
_SAMPLE_BYTES: Final = 4096
# By the format's number of a value's type; strings (8) and arrays (9) have no fixed size.
_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
# Values in a block of a tensor's type, and its bytes (ggml's type traits). Of an unknown type the size is not checked.
_BLOCKS: Final[Mapping[int, tuple[int, int]]] = {
    0: (1, 4),
    1: (1, 2),
    24: (1, 1),
    25: (1, 2),
    26: (1, 4),
    27: (1, 8),
    28: (1, 8),
    30: (1, 2),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    9: (32, 36),
    20: (32, 18),
    39: (32, 17),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    15: (256, 292),
    16: (256, 66),
    17: (256, 74),
    18: (256, 98),
    19: (256, 50),
    21: (256, 110),
    22: (256, 82),
    23: (256, 136),
    29: (256, 56),
    34: (256, 54),
    35: (256, 66),
}
# llama.cpp keeps keys and values as 16-bit floats unless it is told otherwise.
_KV_VALUE_BYTES: Final = 2


class BadModelFile(ValueError):
    """It is not a whole GGUF file. The message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One model. `kv_token_bytes`: what a token takes in KV, at most (layers that look back only so far take less); 0 where the
    file does not tell. `fingerprint`: another one for other weights, with overwhelming likelihood."""

    architecture: str
    bytes: int
    context_tokens: int
    kv_token_bytes: int
    vocabulary: int
    fingerprint: str


def parse(data: Any) -> ModelFile:
    """Reads a whole file; `data` is a buffer of it. Raises BadModelFile."""
    size = len(data)
    reader = _Reader(data, size)
    try:
        return _read(reader, size)
    except struct.error:
        raise BadModelFile(f"it ends after {size:,} bytes in the middle of its header: it is cut short") from None


def _read(reader: _Reader, size: int) -> ModelFile:
    if reader.bytes(4) != MAGIC:
        raise BadModelFile("it does not begin as a GGUF file does")
    version, tensors, pairs = reader.one("I"), reader.one("Q"), reader.one("Q")
    if version not in _VERSIONS:
        raise BadModelFile(f"it has version {version} of the format, and 2 and 3 are known")
    if tensors > _MOST_TENSORS or pairs > _MOST_PAIRS:
        raise BadModelFile(f"it claims to have {tensors} tensors and {pairs} settings: its header is damaged")
    found: dict[str, Any] = {}
    for _ in range(pairs):
        name = reader.string()
        found[name] = reader.value(reader.one("I"))
    # The tensors' data begin at a multiple of this.
    alignment = found.get("general.alignment", _ALIGNMENT)
    ends = [_tensor_end(reader) for _ in range(tensors)]
    if not isinstance(alignment, int) or alignment < 1:
        raise BadModelFile("its alignment makes no sense: its header is damaged")
    begin = math.ceil(reader.at / alignment) * alignment
    wanted = begin + max(ends, default=0)
    if wanted > size:
        raise BadModelFile(f"it has {size:,} bytes of {wanted:,}: it is cut short")
    return _described(found, size, reader.digest())


def _tensor_end(reader: _Reader) -> int:
    reader.string()
    dimensions = reader.one("I")
    if dimensions > _MOST_SHAPE:
        raise BadModelFile(f"it has a tensor of {dimensions} dimensions: its header is damaged")
    values = math.prod(reader.one("Q") for _ in range(dimensions))
    kind, offset = reader.one("I"), reader.one("Q")
    block, block_bytes = _BLOCKS.get(kind, (1, 0))
    return int(offset + values // block * block_bytes)


def _described(found: Mapping[str, Any], size: int, fingerprint: str) -> ModelFile:
    architecture = str(found.get("general.architecture", ""))[:100]

    def number(name: str) -> int:
        value = found.get(f"{architecture}.{name}", 0)
        return value if isinstance(value, int) and value > 0 else 0

    tokens = found.get("tokenizer.ggml.tokens")
    return ModelFile(
        architecture,
        size,
        number("context_length"),
        _kv_token_bytes(found.get(f"{architecture}.attention.head_count_kv"), number),
        tokens.count if isinstance(tokens, _Long) else len(tokens) if isinstance(tokens, list) else 0,
        fingerprint,
    )


def _kv_token_bytes(kv_heads: Any, number: Any) -> int:
    layers, heads = number("block_count"), number("attention.head_count")
    head = number("embedding_length") // heads if heads else 0
    width = (number("attention.key_length") or head) + (number("attention.value_length") or head)
    if isinstance(kv_heads, list):
        all_heads = sum(each for each in kv_heads if isinstance(each, int) and each > 0)
    else:
        all_heads = layers * (kv_heads if isinstance(kv_heads, int) and kv_heads > 0 else heads)
    return int(all_heads * width * _KV_VALUE_BYTES)


@dataclass(frozen=True, slots=True)
class _Long:
    """An array of which only the length is kept."""

    count: int


class _Reader:
    """Reads forward; struct.error where the data end. `size`: of the file."""

    def __init__(self, data: Any, size: int) -> None:
        self._data, self._size = data, size
        self.at = 0

    def digest(self) -> str:
        """Of all that was read, the size, and samples of the rest: other weights may have the same header."""
        made = hashlib.sha256(self._data[: self.at] + str(self._size).encode())
        step = max(_SAMPLE_BYTES, (self._size - self.at) // _SAMPLES)
        for begin in range(self.at, self._size, step):
            made.update(self._data[begin : begin + _SAMPLE_BYTES])
        return made.hexdigest()[:32]

    def one(self, code: str) -> Any:
        found = struct.unpack_from("<" + code, self._data, self.at)[0]
        self.at += struct.calcsize("<" + code)
        return found

    def skip(self, count: int) -> None:
        if count > len(self._data) - self.at:
            raise struct.error
        self.at += count

    def bytes(self, count: int) -> bytes:
        begin = self.at
        self.skip(count)
        return bytes(self._data[begin : self.at])

    def string(self) -> str:
        return self.bytes(self.one("Q")).decode("utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind in _SCALARS:
            return self.one(_SCALARS[kind])
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY or depth >= _MOST_DEPTH:
            raise BadModelFile(f"it has a setting of the unknown type {kind}: its header is damaged")
        return self._array(self.one("I"), self.one("Q"), depth)

    def _array(self, kind: int, count: int, depth: int) -> Any:
        if count <= _MOST_KEPT:
            return [self.value(kind, depth + 1) for _ in range(count)]
        if kind in _SCALARS:
            self.skip(count * struct.calcsize("<" + _SCALARS[kind]))
        elif kind == _STRING:
            for _ in range(count):
                self.skip(self.one("Q"))
        else:
            raise BadModelFile("it has long arrays of arrays: its header is damaged")
        return _Long(count)
