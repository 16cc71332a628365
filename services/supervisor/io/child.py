"""One child process: started, its output read line by line, its end awaited."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from services.supervisor.io.starting import Launch, Running, Spawner, Starter

_LONGEST_LINE_BYTES: Final = 64 * 1024


class Child:
    """A process that dies with this one. `on_line` gets each line of its output, without the newline.

    `descriptors` stay open in it, under the same numbers.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        on_line: Callable[[str], None],
        descriptors: Sequence[int] = (),
        starter: Starter | None = None,
    ) -> None:
        self._starter = starter or Spawner()
        self._command = list(command)
        self._descriptors = tuple(descriptors)
        self._environment = dict(environment)
        self._on_line = on_line
        self._process: Running | None = None
        self._output: _Lines | None = None
        self._transport: asyncio.ReadTransport | None = None
        self._started_at = 0.0
        # What it said last: shown when it could not start.
        self.last_lines: deque[str] = deque(maxlen=20)

    @property
    def pid(self) -> int:
        """Its process id; 0 before the start."""
        return self._process.pid if self._process else 0

    @property
    def running(self) -> bool:
        """It was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def lived_s(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self._started_at

    async def start(self) -> None:
        """Starts it."""
        read, write = os.pipe()
        try:
            launch = Launch(self._command, self._environment, write, write, self._descriptors)
            self._process = await self._starter.start(launch)
        finally:
            os.close(write)
        self._started_at = time.monotonic()
        self._output = _Lines(self._take)
        output = self._output
        self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: output, os.fdopen(read, "rb", buffering=0)
        )

    async def wait(self) -> int:
        """Its exit code, negative for a signal; returns when it has ended."""
        process = self._process
        if process is None:
            raise RuntimeError("not started")
        code = await process.wait()
        if self._output is not None:
            # Its own children may hold the pipe open, so the rest of the output gets a moment and no more.
            await asyncio.wait({self._output.ended}, timeout=0.2)
        return code

    async def stop(self, grace_s: float) -> bool:
        """Asks it to end and kills it after `grace_s`; False when it had to be killed."""
        if self._process is None or not self.running:
            return True
        self._process.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_s):
                await self.wait()
        except TimeoutError:
            await self.kill()
            return False
        return True

    async def kill(self) -> None:
        """Ends it at once."""
        if self._process is not None and self.running:
            self._process.signal(signal.SIGKILL)
            await self.wait()

    def close(self) -> None:
        """Stops reading its output."""
        if self._transport is not None:
            self._transport.close()

    def _take(self, line: str) -> None:
        self.last_lines.append(line)
        self._on_line(line)


class _Lines(asyncio.Protocol):
    """Splits what arrives into lines; a line without an end is cut at 64 KiB."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take = take
        self._rest = bytearray()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self._rest += data
        *lines, rest = self._rest.split(b"\n")
        self._rest = bytearray(rest)
        for line in lines:
            self._take(line.decode(errors="replace").rstrip("\r"))
        if len(self._rest) > _LONGEST_LINE_BYTES:
            self._flush()

    def connection_lost(self, problem: Exception | None) -> None:
        self._flush()
        if not self.ended.done():
            self.ended.set_result(None)

    def _flush(self) -> None:
        if self._rest:
            self._take(self._rest.decode(errors="replace"))
            self._rest.clear()
