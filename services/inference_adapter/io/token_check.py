"""Asks an engine for one token: what a port that answers does not show."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from services.inference_adapter.interfaces import Backend, EngineCall, EngineSink
from streamway.errors import StreamwayError
from streamway.v1 import common_pb2

# What stands for a generation's id, in the engine's own log too.
NAME: Final = "token-check"


class TokenCheck:
    """A call of one token, of the engine's first model, in at most `timeout_s`."""

    def __init__(self, backend: Backend, timeout_s: float) -> None:
        self._backend = backend
        self._timeout_s = timeout_s

    async def __call__(self) -> bool:
        """Whether a token came."""
        model = self._backend.info().models[0].name
        body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        request = common_pb2.GenerationRequest(generation=NAME, model=model, openai_body=msgspec.json.encode(body))
        sink = _Sink()
        call: EngineCall = self._backend.call(request, sink)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await sink.over
        except TimeoutError:
            return False
        finally:
            call.abort()


class _Sink(EngineSink):
    """Knows whether the engine has said anything."""

    def __init__(self) -> None:
        self.over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def started(self) -> None:
        """Says nothing of tokens."""

    def piece(
        self,
        choice: int,
        text: str,
        *,
        raw_delta: bytes = b"",
        finish_reason: str = "",
        token_ids: tuple[int, ...] = (),
    ) -> None:
        """A token, or the end of one that has no text."""
        self._tell(True)

    def ended(self, usage: common_pb2.Usage | None) -> None:
        self._tell(True)

    def failed(self, error: StreamwayError) -> None:
        """A refusal is no token."""
        self._tell(False)

    def _tell(self, spoke: bool) -> None:
        if not self.over.done():
            self.over.set_result(spoke)
