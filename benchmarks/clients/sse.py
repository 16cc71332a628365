"""OpenAI chat completions over SSE, one connection a request, on a bare asyncio protocol.

The client must cost less than what it measures: it looks for a few byte patterns instead of parsing JSON.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import cast
from urllib.parse import urlsplit

from benchmarks.clients.plan import Plan, Record, Tally, now

_USAGE = re.compile(rb'"completion_tokens":\s*(\d+)')


class _Stream(asyncio.Protocol):
    """One request and its answer."""

    def __init__(self, request: bytes, tally: Tally, record: Record, done: asyncio.Future[None]) -> None:
        self._request = request
        self._tally = tally
        self._record = record
        self._done = done
        self._tail = b""
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
                self._finish(f"http_{self._status.decode(errors='replace')}")
                return
        block = self._tail + data
        events = block.split(b"\n\n")
        self._tail = events.pop()
        for event in events:
            if b'"content":"' in event and b'"content":""' not in event:
                self._record.token(now())
            elif b'"usage":{' in event and (found := _USAGE.search(event)):
                self._tally.tokens += int(found[1])
            elif b"data: [DONE]" in event:
                self._ended = True
                self._tally.finished += 1
                self._finish("")
            elif b'"error"' in event:
                self._finish("in_band_error")

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._ended:
            self._finish("cut")

    def _finish(self, error: str) -> None:
        if error:
            self._ended = True
            self._tally.error(error)
        if not self._done.done():
            self._done.set_result(None)
        self._transport.close()


async def run(plan: Plan, tally: Tally) -> None:
    """Runs the whole plan."""
    url = urlsplit(plan.target)
    host, port = url.hostname or "127.0.0.1", url.port or 80
    loop = asyncio.get_running_loop()

    async def one(stream: int) -> None:
        await asyncio.sleep(plan.ramp_s * stream / plan.streams)
        for turn in range(plan.rounds):
            body = json.dumps(plan.body(stream, turn)).encode()
            auth = f"Authorization: Bearer {plan.api_key}\r\n" if plan.api_key else ""
            head = (
                f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{auth}"
                f"x-streamway-durability: {plan.durability}\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            record = Record(now())
            tally.records.append(record)
            done: asyncio.Future[None] = loop.create_future()
            request = head.encode() + body
            try:
                await loop.create_connection(lambda r=request, c=record, d=done: _Stream(r, tally, c, d), host, port)  # type: ignore[misc]
            except OSError as problem:
                tally.error(type(problem).__name__)
                continue
            await done

    async with asyncio.TaskGroup() as group:
        for stream in range(plan.streams):
            group.create_task(one(stream))
