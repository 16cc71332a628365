"""What the store holds of the cache, as bytes.

    entry    "sc1" | xxh3-64 of the rest | msgpack of `StoredEntry`      one value, with a time to live
    row      "1234 " | msgpack of `Row`                                  what the index knows of it; its size is in front, for Lua
    changes  msgpack of [`Change`, …]                                    one record of the change stream

Whatever reads raises `Damaged` for bytes that are none of this.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, Literal

import msgspec
import numpy as np
import xxhash

from services.cache.interfaces import Vector

_MAGIC: Final = b"sc1"
_HEAD: Final = len(_MAGIC) + 8


class Damaged(Exception):
    """These bytes are nothing that a cache wrote."""


class Alike(msgspec.Struct, frozen=True, array_like=True):
    """What the semantic level needs of an entry. `vector` is float32 as bytes, empty where `encoder` has made none."""

    context: bytes
    question: str
    encoder: str
    vector: bytes

    def vector_of(self, encoder: str) -> Vector | None:
        """The vector if that encoder made it: of unit length, or None."""
        if self.encoder != encoder or not self.vector or len(self.vector) % 4:
            return None
        vector = np.frombuffer(self.vector, "<f4")
        length = float(np.linalg.norm(vector))
        return vector if abs(length - 1) < _UNIT else None


_UNIT: Final = 1e-3


class StoredEntry(msgspec.Struct, frozen=True, array_like=True):
    """An entry as it outlives a process. Times are Unix milliseconds; `body` is a CachedAnswer.

    `folded` is its key in `core.folds`, empty where it has none.
    """

    id: str
    tenant: str
    key: bytes
    model: str
    tags: tuple[str, ...]
    stored_ms: int
    expires_ms: int
    cost: float
    body: bytes
    folded: bytes = b""
    alike: Alike | None = None


class Row(msgspec.Struct, frozen=True, array_like=True):
    """What the index of a tenant says of an entry, without reading it."""

    key: bytes
    model: str
    tags: tuple[str, ...]
    expires_ms: int


class Change(msgspec.Struct, frozen=True, array_like=True):
    """What one cache tells the others. `ids` and `keys` go together; `held_bytes` is what the tenant's entries take now.

    added   entries are in the store
    gone    these are not any more
    purged  nor is any of a model (`name`), of a tag (`name`), or of the whole tenant
    wrong   an entry (`ids`) was the wrong answer to a question: `keys` of both, `similarity`
    learned what is known of a tenant was saved
    lost    more than could be told has changed
    """

    what: Literal["added", "gone", "purged_model", "purged_tag", "purged_all", "wrong", "learned", "lost"]
    tenant: str
    ids: tuple[str, ...] = ()
    keys: tuple[bytes, ...] = ()
    name: str = ""
    held_bytes: int = 0
    similarity: float = 0.0


class Changes(msgspec.Struct, frozen=True, array_like=True):
    """One record of the stream. `origin` names the process that wrote it."""

    origin: str
    changes: tuple[Change, ...]


_pack = msgspec.msgpack.Encoder().encode
_entry = msgspec.msgpack.Decoder(StoredEntry)
_row = msgspec.msgpack.Decoder(Row)
_changes = msgspec.msgpack.Decoder(Changes)


def pack_entry(entry: StoredEntry) -> bytes:
    """For `unpack_entry`."""
    return sealed(_pack(entry))


def unpack_entry(value: bytes) -> StoredEntry:
    """Raises Damaged."""
    try:
        return _entry.decode(unsealed(value))
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise Damaged(str(problem)) from problem


def sealed(content: bytes) -> bytes:
    """With a checksum in front."""
    return _MAGIC + struct.pack(">Q", xxhash.xxh3_64_intdigest(content)) + content


def unsealed(value: bytes) -> bytes:
    """The content. Raises Damaged."""
    content = value[_HEAD:]
    if value[:_HEAD] != _MAGIC + struct.pack(">Q", xxhash.xxh3_64_intdigest(content)):
        raise Damaged("the checksum is another")
    return content


def pack_row(row: Row, size_bytes: int) -> bytes:
    """For `unpack_row`."""
    return b"%d " % size_bytes + _pack(row)


def unpack_row(value: bytes) -> Row:
    """Raises Damaged."""
    size, _, content = value.partition(b" ")
    try:
        if not size.isdigit():
            raise Damaged("a row without a size")
        return _row.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise Damaged(str(problem)) from problem


def pack_changes(origin: str, changes: Sequence[Change]) -> bytes:
    """For `unpack_changes`."""
    return _pack(Changes(origin, tuple(changes)))


def unpack_changes(value: bytes) -> Changes:
    """Raises Damaged."""
    try:
        return _changes.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise Damaged(str(problem)) from problem
