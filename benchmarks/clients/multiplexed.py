"""Every generation of a plan on one WebSocket, by the JSON subprotocol."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Final
from urllib.parse import urlsplit

from benchmarks.clients.plan import USAGE, Plan, Record, Tally, now, reason_of
from benchmarks.clients.websocket import Frames, text_of

_ID: Final = re.compile(rb'"id":"(\d+)"')


class _Socket(Frames):
    """The socket."""

    def __init__(self, plan: Plan, tally: Tally, done: asyncio.Future[None]) -> None:
        super().__init__(plan)
        self._tally, self._done = tally, done
        self._live: dict[bytes, Record] = {}
        self._left = plan.streams
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def open(self) -> None:
        self.opened.set_result(None)

    def ask(self, stream: int) -> None:
        """Opens one generation."""
        record = self._live[b"%d" % stream] = Record(now())
        self._tally.records.append(record)
        self.send(1, json.dumps(self._plan.open_frame(str(stream), stream, 0)).encode())

    def text(self, payload: bytes) -> None:
        named = _ID.search(payload)
        record = self._live.get(named[1]) if named else None
        if named is None or record is None:
            return
        if b'"type":"token"' in payload:
            self._tally.token(record, now(), text_of(payload))
            return
        if b'"type":"finished"' in payload:
            found = USAGE.search(payload)
            self._tally.tokens += int(found[1]) if found else 0
            self._tally.finished += 1
        elif b'"type":"error"' in payload:
            self._tally.error(reason_of(payload, "error_frame"))
        else:
            return
        del self._live[named[1]]
        self._left -= 1
        if not self._left:
            self.ended("")

    def ended(self, error: str) -> None:
        if self._done.done():
            return
        if error:
            self._tally.error(error)
        self._done.set_result(None)
        self.close()


async def run(plan: Plan, tally: Tally) -> None:
    """Runs the whole plan; `rounds` is not looked at."""
    url = urlsplit(plan.target)
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    _, socket = await loop.create_connection(lambda: _Socket(plan, tally, done), url.hostname or "", url.port or 80)
    await socket.opened
    for stream in range(plan.streams):
        socket.ask(stream)
        await asyncio.sleep(plan.ramp_s / plan.streams)
    await done
