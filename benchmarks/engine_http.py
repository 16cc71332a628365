"""HTTP/1.1 for the simulated engine, on transports: the engine must cost less than what is measured in front of it."""

from __future__ import annotations

import asyncio
import itertools
import time
from http import HTTPStatus
from typing import Any, cast

import httptools
import msgspec

from benchmarks.engine_answers import Answer, CollectedAnswer, StreamedAnswer
from streamway.simulation.driver import EngineDriver
from streamway.simulation.engine import Event
from streamway.simulation.request import Refused, read
from streamway.simulation.sequence import SimulatedCall
from streamway.simulation.settings import SimulationSettings

BODY_LIMIT_BYTES = 64 * 1024 * 1024
UNSENT_LIMIT_BYTES = 4 * 1024 * 1024
_encode = msgspec.json.Encoder().encode
_ids = itertools.count(1)


def deliver(event: Event) -> None:
    """Gives an event of the engine to the answer it belongs to."""
    event.call.tag.deliver(event)


class Connections(set["EngineProtocol"]):
    """Those that are open. One is closed after `keep_s` seconds without a request, 0 never; `used` counts those that ever
    carried a generation. What a step of the engine makes for a connection is sent in one go (`send`)."""

    def __init__(self, keep_s: float = 0.0) -> None:
        super().__init__()
        self.keep_s = keep_s
        self.used = 0
        self.unsent: list[EngineProtocol] = []

    def send(self) -> None:
        """Sends what the step has made. An engine that is late makes several tokens of an answer in a step."""
        unsent, self.unsent = self.unsent, []
        for connection in unsent:
            connection.send()


class EngineProtocol(asyncio.Protocol):
    """One connection. A client that goes, even half, stops the work done for it."""

    def __init__(self, driver: EngineDriver, settings: SimulationSettings, peers: Connections) -> None:
        self._driver, self._settings, self._peers = driver, settings, peers
        self._transport: asyncio.Transport | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._used = False
        self._parser = httptools.HttpRequestParser(self)
        self._path, self._body = "", bytearray()
        self._complete = False
        self._unsent: list[bytes] = []
        self._call: SimulatedCall | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=UNSENT_LIMIT_BYTES)
        self._peers.add(self)
        self._wait()

    def _wait(self) -> None:
        if self._peers.keep_s and self._transport is not None:
            self._idle = asyncio.get_running_loop().call_later(self._peers.keep_s, self._transport.close)

    def pause_writing(self) -> None:
        self.abort()  # a client that does not read

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._peers.discard(self)
        self._awake()
        self._stop()

    def _awake(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def data_received(self, data: bytes) -> None:
        self._awake()
        if self._call is not None:
            self.abort()  # no pipelining
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._reply(400, {"error": {"message": "this is not HTTP"}})
            self.abort(gently=True)
            return
        if len(self._body) > BODY_LIMIT_BYTES:
            self._reply(413, {"error": {"message": "the body is too large"}})
            self.abort(gently=True)
        elif self._complete:
            self._complete = False
            body, self._body = bytes(self._body), bytearray()
            self._serve(self._path, body)

    def on_url(self, url: bytes) -> None:
        self._path = url.decode("latin-1").partition("?")[0]

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self._complete = True

    def _serve(self, path: str, body: bytes) -> None:
        match path:
            case "/v1/chat/completions":
                self._generate(body)
            case "/v1/models":
                self._reply(200, self._models())
            case "/metrics":
                self._send(200, "text/plain; version=0.0.4", self._metrics().encode())
            case "/health":
                self._reply(200, {"status": "ok"})
            case _:
                self._reply(404, {"error": {"message": f"there is no {path[:100]}"}})

    def _generate(self, body: bytes) -> None:
        try:
            request = read(body, self._settings)
        except Refused as refused:
            after = f"Retry-After: {refused.retry_after_s}\r\n" if refused.retry_after_s else ""
            self._send(refused.status, "application/json", _encode(refused.body()), after)
            return
        kind = StreamedAnswer if request.stream else CollectedAnswer
        if not self._used:
            self._used = True
            self._peers.used += 1
        id_ = f"chatcmpl-{next(_ids):012x}"
        answer: Answer = kind(id_, int(time.time()), self._settings.model, request, self.write, self._over, self.abort)
        self._call = self._driver.submit(request, answer)

    def write(self, data: bytes) -> None:
        """Has bytes sent at the end of the engine's step."""
        if not self._unsent:
            self._peers.unsent.append(self)
        self._unsent.append(data)

    def send(self) -> None:
        """Sends what was written."""
        unsent, self._unsent = self._unsent, []
        if unsent and self._transport is not None:
            self._transport.write(b"".join(unsent))

    def _over(self) -> None:
        """The answer is complete; the connection can take another request."""
        self._call = None
        self._wait()

    def _stop(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.tag = None
            self._driver.cancel(call)

    def abort(self, *, gently: bool = False) -> None:
        """Ends the connection; `gently`: after what was written."""
        self._stop()
        self.send()
        if self._transport is not None:
            if gently:
                self._transport.close()
            else:
                self._transport.abort()

    def _reply(self, status: int, body: Any) -> None:
        self._send(status, "application/json", _encode(body))

    def _send(self, status: int, content_type: str, body: bytes, headers: str = "") -> None:
        self._wait()
        reason = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Told"
        head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        if self._transport is not None:
            self._transport.write(f"{head}{headers}\r\n".encode() + body)

    def _models(self) -> dict[str, Any]:
        settings = self._settings
        row = {"id": settings.model, "object": "model", "created": 0, "owned_by": "streamway"}
        return {"object": "list", "data": [{**row, "max_model_len": settings.context_tokens}]}

    def _metrics(self) -> str:
        engine = self._driver.engine
        totals = engine.totals
        rows = {
            "requests_running": engine.running,
            "requests_waiting": engine.waiting,
            "kv_used_ratio": round(engine.kv_used, 6),
            "requests_total": totals.calls,
            "requests_cancelled_total": totals.cancelled,
            "tokens_total": totals.generated_tokens,
            "prompt_tokens_total": totals.prompt_tokens,
            "prompt_tokens_cached_total": totals.cached_tokens,
            "connections_used_total": self._peers.used,
        }
        return "".join(f"simulated:{name} {value}\n" for name, value in rows.items())
