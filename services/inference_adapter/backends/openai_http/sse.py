"""Server-sent events out of any bytes, however they are cut.

Pure and total: every byte string is either read or refused with `EventTooLarge`. Only the data of events is kept; OpenAI's
surface uses neither names nor ids. The grammar is that of https://html.spec.whatwg.org/multipage/server-sent-events.html:

    data: {"a":1}⏎        one field a line; a line ends with LF, CR or CRLF
    data: {"b":2}⏎        a second data line of the same event is joined with LF
    : comment⏎            ignored, like event:, id: and retry:
    ⏎                     the empty line ends the event
"""

from __future__ import annotations

from typing import Final

_BOM: Final = b"\xef\xbb\xbf"


class EventTooLarge(Exception):
    """A line or an event is larger than the limit; the stream cannot be read any further."""


class SSEParser:
    """Turns the bytes of one stream into the data of its events. One unfinished line and event are kept, up to `limit_bytes`."""

    __slots__ = ("_data", "_first", "_kept", "_limit", "_rest", "_skip_lf")

    def __init__(self, limit_bytes: int = 4 * 1024 * 1024) -> None:
        self._limit = limit_bytes
        self._rest: list[bytes] = []  # pieces of the unfinished line: joined once, when its end comes
        self._kept = 0  # bytes in `_rest` and `_data`
        self._data: list[bytes] = []  # data lines of the unfinished event
        self._skip_lf = False  # the last byte was a CR that ended its line: an LF now belongs to it
        self._first = True

    @property
    def between_events(self) -> bool:
        """It has read something, and what it has read ended with an event."""
        return not (self._first or self._skip_lf or self._rest or self._data)

    def feed(self, chunk: bytes) -> list[bytes]:
        """Data of the events that `chunk` completes. Raises EventTooLarge."""
        # What nearly every packet is, one whole event of one line: a sixth of a worker's time a token went into the rest of this.
        if (
            chunk.find(b"\n") == len(chunk) - 2
            and chunk.startswith(b"data: ")
            and chunk.endswith(b"\n\n")
            and b"\r" not in chunk
            and not (self._first or self._skip_lf or self._rest or self._data)
            and len(chunk) <= self._limit
        ):
            return [chunk[6:-2]]
        if self._skip_lf and chunk:
            self._skip_lf = False
            if chunk[0] == 0x0A:
                chunk = chunk[1:]
        if not chunk:
            return []
        # bytes.splitlines ends lines at LF, CR and CRLF and at nothing else, as the grammar wants.
        lines = chunk.splitlines()
        last = chunk[-1]
        unfinished = b""
        if last == 0x0D:
            self._skip_lf = True
        elif last != 0x0A:
            unfinished = lines.pop()
        if lines and self._rest:
            self._rest.append(lines[0])
            lines[0] = b"".join(self._rest)
            self._rest.clear()
            self._kept = sum(map(len, self._data))
        events = self._read(lines) if lines else []
        if unfinished:
            self._rest.append(unfinished)
            self._keep(len(unfinished))
        return events

    def _read(self, lines: list[bytes]) -> list[bytes]:
        if self._first:
            self._first = False
            lines[0] = lines[0].removeprefix(_BOM)
        events: list[bytes] = []
        data = self._data
        for line in lines:
            if not line:
                if data:
                    events.append(data[0] if len(data) == 1 else b"\n".join(data))
                    data.clear()
                    self._kept = 0
            elif line.startswith(b"data:"):
                value = line[6:] if line[5:6] == b" " else line[5:]
                data.append(value)
                # Empty lines count too, or a million of them would cost nothing.
                self._keep(len(value) + 1)
            elif line == b"data":
                data.append(b"")
                self._keep(1)
        return events

    def _keep(self, size: int) -> None:
        self._kept += size
        if self._kept > self._limit:
            raise EventTooLarge(f"an event of the engine is larger than {self._limit} bytes")
