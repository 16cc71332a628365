"""Labelled data: from the package `fow-cache`, and from a folder in the format of docs/cache-eval.md."""

from __future__ import annotations

import csv
import hashlib
import importlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def is_reported(id_: str) -> bool:
    """It belongs to the half that is reported; the other one is for tuning and training."""
    return bool(hashlib.blake2b(id_.encode(), digest_size=4).digest()[0] & 1)


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """Two questions; `reusable` when the answer to the one answers the other."""

    id: str
    category: str
    a: str
    b: str
    reusable: bool


@dataclass(frozen=True, slots=True)
class Conversation:
    """Two chats, each a list of turns that ends with a question; `reusable` as above."""

    id: str
    category: str
    a: list[dict[str, str]]
    b: list[dict[str, str]]
    reusable: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """A question of a stream; those of one category have one answer."""

    text: str
    category: str


@dataclass(slots=True)
class DataSet:
    """What one source has."""

    name: str
    pairs: list[LabelledPair]
    conversations: list[Conversation]
    stream: list[Asked]


def from_package() -> DataSet:
    """What people wrote for `fow-cache`, CC BY 4.0."""
    try:
        package = importlib.import_module("fow_cache.data")
    except ModuleNotFoundError as error:
        raise SystemExit("this data needs a package: pip install --no-deps fow-cache==0.1.0") from error
    return DataSet("fow-cache", _pairs(package.load_questions()), _conversations(package.load_conversations()), [])


def from_folder(folder: Path) -> list[DataSet]:
    """Each data set below a folder."""
    found: dict[Path, DataSet] = {}

    def at(path: Path) -> DataSet:
        return found.setdefault(path.parent, DataSet(path.parent.name, [], [], []))

    for path in sorted(folder.rglob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        if rows and isinstance(rows[0]["a"], list):
            at(path).conversations += _conversations(rows)
        else:
            at(path).pairs += _pairs(rows)
    for path in sorted(folder.rglob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            if {"text", "category"} <= set(reader.fieldnames or ()):
                at(path).stream += [Asked(row["text"], row["category"]) for row in reader]
    return list(found.values())


def _pairs(rows: Iterable[dict[str, Any]]) -> list[LabelledPair]:
    return [
        LabelledPair(
            str(row["id"]), str(row.get("test") or row["category"]), row["a"], row["b"], bool(row["same_answer"])
        )
        for row in rows
    ]


def _conversations(rows: Iterable[dict[str, Any]]) -> list[Conversation]:
    return [
        Conversation(
            str(row["id"]), str(row.get("subtype") or row["category"]), row["a"], row["b"], bool(row["same_answer"])
        )
        for row in rows
    ]
