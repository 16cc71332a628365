"""Indexes of large contexts in files, so that a restart does not build them again.

    0       4,096                                    4,096 + index_bytes
    ├───────┼────────────────────────────────────────┼──────────────────────────────┤
    │ JSON  │ the index as FAISS writes it           │ entry ids by label, a line each
    │ and   │                                        │ (empty: a tombstone)
    │ zeros │ └──────────── checksum ───────────────────────────────────────────────┘

A file is an accelerator and never the truth: entries and vectors come from elsewhere, what is in the file and not among them is
a tombstone, what is missing in it counts as new. It is written beside its place and renamed; one that is not whole, or of another
encoder, is refused, counted and removed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec
import numpy as np
import structlog
import xxhash

from services.cache.core.semantic.kinds import Kind
from services.cache.interfaces import ApproximateIndex, IndexReader, Slots

_log = structlog.get_logger("cache")

_HEADER_BYTES: Final = 4096
_VERSION: Final = 1
_AT_ONCE: Final = 1024**2


class _Header(msgspec.Struct, tag="streamway-index", forbid_unknown_fields=True):
    version: int
    encoder: str
    dims: int
    kind: Kind
    index_bytes: int
    size_bytes: int
    checksum: str


class _Refused(Exception):
    """A file that cannot be used. The text is a label of a metric."""


class Loaded(NamedTuple):
    """An index from a file, and the rows that it has."""

    shortcut: ApproximateIndex
    slots: Slots


class IndexFiles:
    """One file for each large context in `folder`, which is private to this process.

    `outcomes` counts files by `written`, `read`, `damaged`, `foreign` and `failed`. Everything here takes as long as the disk
    does: call it in a thread.
    """

    def __init__(self, folder: Path, read: IndexReader, most_age_s: float) -> None:
        self._folder = folder
        self._most_age_s = most_age_s
        self._read = read
        self.outcomes: Counter[str] = Counter()

    def tidy(self) -> None:
        """Makes the folder, and removes half-written files and those so old that all their entries have expired."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in self._folder.iterdir():
            if path.suffix == ".part" or path.stat().st_mtime < time.time() - self._most_age_s:
                path.unlink(missing_ok=True)

    def remove(self, partition: bytes) -> None:
        """The context has no index any more."""
        self._path(partition).unlink(missing_ok=True)

    @contextlib.contextmanager
    def writing(self, partition: bytes, encoder: str, index: ApproximateIndex, dims: int) -> Iterator[Writer]:
        """Writes an index. Without `Writer.finish` there is no file, and an older one stays."""
        path = self._path(partition)
        part = path.with_suffix(".part")
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                yield Writer(file, lambda: part.replace(path), encoder, index, dims, self.outcomes)
        finally:
            part.unlink(missing_ok=True)

    def load(
        self, partition: bytes, encoder: str, dims: int, kind: Kind, slot_of: Callable[[str], int]
    ) -> Loaded | None:
        """What the file of a context has; None without one that can be used. `slot_of` gives −1 for an entry that has gone."""
        path = self._path(partition)
        try:
            with path.open("rb") as file:
                loaded = self._loaded(file, encoder, dims, kind, slot_of)
            self.outcomes["read"] += 1
            return loaded
        except FileNotFoundError:
            return None
        except _Refused as refused:
            self.outcomes[str(refused)] += 1
        except (OSError, RuntimeError, ValueError) as problem:
            _log.info("index_file_unreadable", problem=type(problem).__name__)
            self.outcomes["damaged"] += 1
        _log.warning("index_file_refused", file=path.name)
        path.unlink(missing_ok=True)
        return None

    def _path(self, partition: bytes) -> Path:
        return self._folder / f"{partition.hex()}.index"

    def _loaded(self, file: BinaryIO, encoder: str, dims: int, kind: Kind, slot_of: Callable[[str], int]) -> Loaded:
        try:
            header = msgspec.json.decode(file.read(_HEADER_BYTES).rstrip(b"\0"), type=_Header)
        except msgspec.DecodeError as problem:
            raise _Refused("damaged") from problem
        if (header.version, header.encoder, header.dims, header.kind) != (_VERSION, encoder, dims, kind):
            raise _Refused("foreign")
        # FAISS believes what it reads: nothing is given to it that is not what it wrote.
        checksum = xxhash.xxh3_128()
        while piece := file.read(_AT_ONCE):
            checksum.update(piece)
        if file.tell() != header.size_bytes or checksum.hexdigest() != header.checksum:
            raise _Refused("damaged")
        file.seek(_HEADER_BYTES + header.index_bytes)
        slots = np.fromiter((slot_of(line[:-1].decode()) for line in file), np.int64)
        file.seek(_HEADER_BYTES)
        index = self._read(header.kind, file.read, slots)
        return Loaded(index, slots[slots >= 0])


class Writer:
    """Two steps, since the ids are known only when it is known what changed while the index was written."""

    def __init__(
        self,
        file: BinaryIO,
        put_in_place: Callable[[], object],
        encoder: str,
        index: ApproximateIndex,
        dims: int,
        outcomes: Counter[str],
    ) -> None:
        self._file = file
        self._put_in_place = put_in_place
        self._encoder = encoder
        self._index = index
        self._dims = dims
        self._outcomes = outcomes
        self._checksum = xxhash.xxh3_128()

    def begin(self) -> None:
        """Writes the index, which must not be added to meanwhile."""
        self._file.seek(_HEADER_BYTES)
        self._index.write(self._put)

    def finish(self, entries: list[str]) -> None:
        """Writes the entries by label, and puts the file in its place."""
        index_bytes = self._file.tell() - _HEADER_BYTES
        for start in range(0, len(entries), _AT_ONCE // 32):
            self._put("".join(f"{entry}\n" for entry in entries[start : start + _AT_ONCE // 32]).encode())
        size_bytes = self._file.tell()
        self._file.seek(0)
        checksum = self._checksum.hexdigest()
        header = _Header(_VERSION, self._encoder, self._dims, self._index.kind, index_bytes, size_bytes, checksum)
        encoded = msgspec.json.encode(header)
        if len(encoded) > _HEADER_BYTES:
            raise ValueError(f"a header of {len(encoded)} bytes")
        self._file.write(encoded.ljust(_HEADER_BYTES, b"\0"))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._put_in_place()
        self._outcomes["written"] += 1

    def _put(self, data: Any) -> None:
        self._checksum.update(data)
        self._file.write(data)
