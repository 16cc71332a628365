"""Any server that speaks OpenAI's `POST /v1/embeddings`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import aiohttp
import msgspec
import numpy as np

from services.cache.interfaces import EncoderFailed, Vector

# 64 vectors of 4,096 numbers as JSON take less.
_MOST_REPLY_BYTES: Final = 8 * 1024**2


class _Item(msgspec.Struct):
    index: int
    embedding: list[float]


class _Reply(msgspec.Struct):
    data: list[_Item]


class HttpEncoder:
    """`url` is the server's base, as "http://127.0.0.1:8081/v1". Nothing is tried twice: a late vector is of no use."""

    def __init__(self, url: str, model: str, api_key: str, timeout_s: float) -> None:
        self._url = url.rstrip("/") + "/embeddings"
        self._model = model
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=timeout_s),
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
        )

    @property
    def name(self) -> str:
        """See `Encoder`. A server that changes the model behind one name must be told apart by its URL."""
        return f"{self._model}@{self._url}"

    async def encode(self, texts: Sequence[str]) -> Sequence[Vector | None]:
        """See `Encoder`. What does not fit its window the server refuses, and with it the whole batch."""
        try:
            async with self._session.post(self._url, json={"model": self._model, "input": list(texts)}) as response:
                if response.status != 200:
                    raise EncoderFailed(f"the server answered {response.status}")
                body = await response.content.read(_MOST_REPLY_BYTES + 1)
                while len(body) <= _MOST_REPLY_BYTES and (more := await response.content.read(65536)):
                    body += more
        except (TimeoutError, aiohttp.ClientError, OSError) as problem:
            raise EncoderFailed(type(problem).__name__) from problem
        return self._vectors(body, len(texts))

    async def close(self) -> None:
        """See `Encoder`."""
        await self._session.close()

    def _vectors(self, body: bytes, wanted: int) -> list[Vector | None]:
        if len(body) > _MOST_REPLY_BYTES:
            raise EncoderFailed(f"the reply has more than {_MOST_REPLY_BYTES} bytes")
        try:
            items = msgspec.json.decode(body, type=_Reply).data
        except msgspec.DecodeError as problem:
            raise EncoderFailed("the reply is not that of /v1/embeddings") from problem
        by_index = {item.index: item.embedding for item in items}
        if len(items) != wanted or by_index.keys() != set(range(wanted)):
            raise EncoderFailed(f"{len(items)} vectors for {wanted} texts")
        # What float32 does not hold becomes infinite, and is refused as no direction.
        with np.errstate(over="ignore"):
            return [np.array(by_index[index], np.float32) for index in range(wanted)]
