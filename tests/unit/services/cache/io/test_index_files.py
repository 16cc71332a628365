"""Files of indexes: whole, of this encoder, or refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from services.cache.core.semantic.kinds import Kind
from services.cache.interfaces import ApproximateIndex
from services.cache.io import indexes
from services.cache.io.index_files import IndexFiles, Loaded

DIMS, COUNT = 16, 300
PARTITION = b"p"
ROWS = np.random.default_rng(1).standard_normal((COUNT, DIMS)).astype(np.float32)
ENTRIES = [f"e{slot}" for slot in range(COUNT)]


@pytest.fixture
def files(tmp_path: Path) -> IndexFiles:
    files = IndexFiles(tmp_path / "indexes", indexes.read, most_age_s=3600)
    files.tidy()
    return files


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "indexes" / f"{PARTITION.hex()}.index"


def built(kind: Kind) -> ApproximateIndex:
    index = indexes.build(kind, np.arange(COUNT), lambda slots: ROWS[slots], lambda: False)
    assert index is not None
    return index


def write(files: IndexFiles, kind: Kind = Kind.HNSW) -> None:
    with files.writing(PARTITION, "e5", built(kind), DIMS) as writer:
        writer.begin()
        writer.finish(ENTRIES)


def load(files: IndexFiles, kind: Kind = Kind.HNSW) -> Loaded | None:
    """At another start: entry n is in slot n + 1, and those below 10 have gone."""
    return files.load(PARTITION, "e5", DIMS, kind, lambda entry: n + 1 if (n := int(entry[1:])) >= 10 else -1)


@pytest.mark.parametrize("kind", [Kind.HNSW, Kind.IVF_PQ])
def test_what_was_written_is_read_for_the_slots_of_today(files: IndexFiles, path: Path, kind: Kind) -> None:
    write(files, kind)
    assert path.stat().st_mode & 0o777 == 0o600
    loaded = load(files, kind)
    assert loaded is not None
    assert sorted(loaded.slots.tolist()) == list(range(11, COUNT + 1))
    found = loaded.shortcut.nearest(ROWS, 1)
    assert [number for number in range(10, COUNT) if number + 1 not in found[number].tolist()] == []
    assert files.outcomes == {"written": 1, "read": 1}


@pytest.mark.parametrize(
    ("damage", "outcome"),
    [
        (lambda data: data[:-100], "damaged"),
        (lambda data: data[:5000] + bytes([data[5000] ^ 1]) + data[5001:], "damaged"),
        (lambda data: data[:-5] + bytes([data[-5] ^ 1]) + data[-4:], "damaged"),
        (lambda data: data + b"more", "damaged"),
        (lambda data: b"\0" * 5000, "damaged"),
        (lambda data: b"", "damaged"),
        (lambda data: data.replace(b'"encoder":"e5"', b'"encoder":"e6"'), "foreign"),
        (lambda data: data.replace(b'"version":1', b'"version":2'), "foreign"),
        (lambda data: data.replace(b'"dims":16', b'"dims":15'), "foreign"),
    ],
)
def test_a_damaged_or_foreign_file_is_refused_counted_and_removed(
    files: IndexFiles, path: Path, damage: Callable[[bytes], bytes], outcome: str
) -> None:
    write(files)
    path.write_bytes(damage(path.read_bytes()))
    assert load(files) is None
    assert files.outcomes == {"written": 1, outcome: 1}
    assert not path.exists()


def test_another_kind_than_is_wanted_is_foreign(files: IndexFiles) -> None:
    write(files)
    assert load(files, Kind.IVF_PQ) is None
    assert files.outcomes == {"written": 1, "foreign": 1}


def test_what_is_not_finished_leaves_the_older_file(files: IndexFiles, path: Path) -> None:
    write(files)
    before = path.read_bytes()
    with pytest.raises(OSError, match="disk full"), files.writing(PARTITION, "e5", built(Kind.HNSW), DIMS) as writer:
        writer.begin()
        raise OSError("disk full")
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_without_a_file_nothing_is_counted(files: IndexFiles) -> None:
    assert load(files) is None
    assert files.outcomes == {}


def test_half_files_and_those_whose_entries_have_expired_go(files: IndexFiles, path: Path) -> None:
    write(files)
    old, part = path.with_name("00.index"), path.with_name("01.part")
    for each in (old, part):
        each.write_bytes(b"")
    os.utime(old, (0, 0))
    files.tidy()
    assert list(path.parent.iterdir()) == [path]
    files.remove(PARTITION)
    files.remove(PARTITION)
    assert list(path.parent.iterdir()) == []
