"""GPTCache as its documentation sets up a similar-question cache, over given vectors. Runs in the environment of `others`.

`python gptcache_defaults.py JOB RESULT`: JOB is JSON with `vectors` (a file with arrays `texts` and `vectors`), `streams` (lists
of texts) and `pairs` (stored, asked). RESULT gets, for each request, the place of the one whose answer came back, or null.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    """All of the job."""
    from gptcache import __version__
    from gptcache.adapter.api import get, put

    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with np.load(job["vectors"]) as kept:
        vectors = dict(zip(kept["texts"].tolist(), kept["vectors"], strict=True))
    streams = [_stream(stream, vectors, get, put) for stream in job["streams"]]
    pairs = [_stream(pair, vectors, get, put)[1] is not None for pair in job["pairs"]]
    about = (
        f"GPTCache {__version__}: SearchDistanceEvaluation, similarity_threshold 0.8 (squared distance <= 0.8, a cosine of 0.6),"
        " SQLite and FAISS, at most 1,000 entries"
    )
    Path(sys.argv[2]).write_text(json.dumps({"about": about, "streams": streams, "pairs": pairs}), encoding="utf-8")


def _stream(texts: list[str], vectors: dict[str, Any], get: Any, put: Any) -> list[int | None]:
    from gptcache import cache
    from gptcache.manager import CacheBase, VectorBase, get_data_manager
    from gptcache.processor.pre import get_prompt
    from gptcache.similarity_evaluation import SearchDistanceEvaluation

    # GPTCache writes its index once more when the interpreter ends: whoever started this removes the folder.
    folder = tempfile.mkdtemp(dir=Path.cwd())
    size = len(next(iter(vectors.values())))
    manager = get_data_manager(
        CacheBase("sqlite", sql_url=f"sqlite:///{folder}/cache.db"),
        VectorBase("faiss", dimension=size, index_path=f"{folder}/faiss.index"),
    )
    cache.init(
        pre_embedding_func=get_prompt,
        embedding_func=lambda text, **_: vectors[text],
        data_manager=manager,
        similarity_evaluation=SearchDistanceEvaluation(),
    )
    found: list[int | None] = []
    for at, text in enumerate(texts):
        answer = get(text)
        found.append(None if answer is None else int(answer))
        if answer is None:
            put(text, str(at))
    return found


if __name__ == "__main__":
    main()
