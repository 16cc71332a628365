"""OpenAI chat completions over plain HTTP, one connection a request, on bare asyncio protocols.

The client must cost less than what it measures: a stream is looked through for a few byte patterns, JSON is not parsed.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import cast
from urllib.parse import urlsplit

from benchmarks.clients.plan import USAGE, Plan, Record, Tally, now, reason_of

# A delta with text; some gateways write JSON with spaces.
_TEXT = re.compile(rb'"content":\s?"((?:[^"\\]|\\.)+)"')


class _Request(asyncio.Protocol):
    """One request and its answer."""

    def __init__(self, plan: Plan, request: bytes, tally: Tally, record: Record, done: asyncio.Future[None]) -> None:
        self._plan, self._request = plan, request
        self._tally, self._record, self._done = tally, record, done
        self._status = b""
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self._status:
            self._status = data[9:12]
            if self._status != b"200":
                self.finish(reason_of(data, f"http_{self._status.decode(errors='replace')}"))
                return
        self.answered(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._ended:
            self.finish("cut")

    def answered(self, data: bytes) -> None:
        """A piece of the answer, the head of the first one before it."""

    def finish(self, error: str = "") -> None:
        """Ends it, with what was wrong."""
        self._ended = True
        if error:
            self._tally.error(error)
        else:
            self._tally.finished += 1
        if not self._done.done():
            self._done.set_result(None)
        self._transport.close()


class StreamedRequest(_Request):
    """An answer over SSE."""

    _tail = b""

    def answered(self, data: bytes) -> None:
        events = (self._tail + data).split(b"\n\n")
        self._tail = events.pop()
        for event in events:
            if text := _TEXT.search(event):
                self._tally.token(self._record, now(), len(text[1]))
                if self._record.frames == self._plan.cut_at:
                    self._ended = True
                    self._transport.abort()
                    self._done.set_result(None)
                    return
            elif b'"usage":' in event and (found := USAGE.search(event)):
                self._tally.tokens += int(found[1])
            elif b"data: [DONE]" in event:
                self.finish()
                return
            elif b'"error"' in event:
                self.finish(reason_of(event, "in_band_error"))
                return


class WholeRequest(_Request):
    """An answer in one piece: its first token is there when its last one is."""

    _body = b""

    def answered(self, data: bytes) -> None:
        self._body += data

    def connection_lost(self, exc: Exception | None) -> None:
        found = USAGE.search(self._body)
        if not self._ended and found:
            self._tally.tokens += int(found[1])
            self._tally.token(self._record, now(), int(found[1]))
            self.finish()
        elif not self._ended:
            self.finish("cut")


async def streams(plan: Plan, tally: Tally) -> None:
    """Runs the whole plan with streamed answers."""
    await _run(plan, tally, StreamedRequest, whole=False)


async def wholes(plan: Plan, tally: Tally) -> None:
    """Runs the whole plan with whole answers, as a REST client would."""
    await _run(plan, tally, WholeRequest, whole=True)


async def _run(plan: Plan, tally: Tally, kind: type[_Request], *, whole: bool) -> None:
    url = urlsplit(plan.target)
    host, port = url.hostname or "127.0.0.1", url.port or 80
    loop = asyncio.get_running_loop()
    extra = "".join(f"{name}: {value}\r\n" for name, value in plan.headers.items())
    if whole:
        extra += "Connection: close\r\n"

    async def one(stream: int) -> None:
        await asyncio.sleep(plan.ramp_s * stream / plan.streams)
        for turn in range(plan.rounds):
            body = json.dumps(plan.body(stream, turn, whole=whole)).encode()
            head = (
                f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{extra}"
                f"Content-Length: {len(body)}\r\n\r\n"
            )
            record = Record(now())
            tally.records.append(record)
            done: asyncio.Future[None] = loop.create_future()
            request = head.encode() + body
            try:
                await loop.create_connection(
                    lambda r=request, c=record, d=done: kind(plan, r, tally, c, d),  # type: ignore[misc]
                    host,
                    port,
                )
            except OSError as problem:
                tally.error(type(problem).__name__)
                continue
            await done

    async with asyncio.TaskGroup() as group:
        for stream in range(plan.streams):
            group.create_task(one(stream))
