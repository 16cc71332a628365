"""What a load run is asked for, and what it found."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Any

# What an engine counted, in an answer of any surface.
_REASON = re.compile(rb'"(?:reason|code)":\s*"([A-Za-z_]+)"')
USAGE = re.compile(rb'"completion_tokens":\s*(\d+)')
_REPEATED_PROMPTS = 10
_HELD_S = 5
# A source address has no more ports than this for all of its connections, since each is bound before it is known where to.
PORTS = 20_000
PROMPT = "Tell me, in as many words as you like, how a river finds its way to the sea."


@dataclass(frozen=True)
class Plan:
    """`streams` live at once, each asking `rounds` times for `tokens` tokens; starts are spread over `ramp_s` seconds.

    `durability` is "off", "relaxed" or "strict". `repeated` is the share of requests, 0 … 1, that ask for one of ten answers;
    they allow the mesh's exact cache. `cut_at` cuts each connection at this frame, 0 never. Connections come from 127.0.0.SOURCE
    and, since an address has ports for so many only, from those behind it; 0: from wherever the kernel takes them.
    """

    target: str
    model: str
    streams: int
    tokens: int
    rounds: int
    ramp_s: float
    api_key: str = ""
    prompt_bytes: int = len(PROMPT)
    durability: str = "relaxed"
    repeated: float = 0.0
    cut_at: int = 0
    source: int = 0

    def local_address(self, number: int) -> tuple[str, int] | None:
        """Where connection `number` of this plan comes from."""
        return (f"127.0.0.{self.source + number // PORTS}", 0) if self.source else None

    @property
    def headers(self) -> dict[str, str]:
        """Of an HTTP request, but for those that its body makes. What a gateway does not know it leaves alone."""
        found = {"x-streamway-durability": self.durability}
        if self.api_key:
            found["Authorization"] = f"Bearer {self.api_key}"
        if self.repeated:
            found["x-streamway-cache"] = "exact"
        return found

    def prompt(self, stream: int, turn: int) -> str:
        """A prompt of the asked length. Unless repeats are asked for, no other request shares it, so that no cache can help."""
        number = stream * self.rounds + turn
        repeats = number * 100 // self.count < self.repeated * 100
        head = f"[again {number % _REPEATED_PROMPTS}] " if repeats else f"[{stream}.{turn}] "
        return (head + PROMPT * (self.prompt_bytes // len(PROMPT) + 1))[: max(self.prompt_bytes, len(head) + 8)]

    def open_frame(self, name: str, stream: int, turn: int) -> dict[str, Any]:
        """The same as `open` of the JSON subprotocol, under the id `name`."""
        return {
            "type": "open",
            "id": name,
            "model": self.model,
            "messages": [{"role": "user", "content": self.prompt(stream, turn)}],
            "params": {"max_tokens": self.tokens},
            "durability": self.durability,
        }

    @property
    def count(self) -> int:
        """All requests of the plan."""
        return self.streams * self.rounds

    def body(self, stream: int, turn: int, *, whole: bool = False) -> dict[str, Any]:
        """The request as OpenAI's JSON, for a stream or for a whole answer."""
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": self.prompt(stream, turn)}],
            "max_tokens": self.tokens,
        }
        if self.repeated:
            body["temperature"] = 0
        return body if whole else {**body, "stream": True, "stream_options": {"include_usage": True}}


@dataclass
class Record:
    """Times of one answer, in seconds of the monotonic clock."""

    sent: float
    first: float = 0.0
    last: float = 0.0
    frames: int = 0
    gaps: list[float] = field(default_factory=list)

    def token(self, now: float) -> None:
        """A frame with text has come."""
        if not self.first:
            self.first = now
        else:
            self.gaps.append(now - self.last)
        self.last = now
        self.frames += 1


@dataclass
class Tally:
    """What a run found. `tokens` are counted by the engine's usage, `frames` by what arrived."""

    records: list[Record] = field(default_factory=list)
    tokens: int = 0
    # How much text came in each second of the clock, in whatever the surface tells of it: bytes, or tokens.
    text: dict[int, int] = field(default_factory=dict)
    finished: int = 0
    errors: dict[str, int] = field(default_factory=dict)

    def token(self, record: Record, now: float, text: int) -> None:
        """A frame with so much text has come."""
        record.token(now)
        second = int(now)
        self.text[second] = self.text.get(second, 0) + text

    def held(self) -> float:
        """The most tokens/s that came over some whole seconds in a row; 0 where all took less time. A token is the same part of
        the text in each of them."""
        if not self.text:
            return 0.0
        # The first and the last second are not whole.
        by_second = [self.text.get(second, 0) for second in range(min(self.text) + 1, max(self.text))]
        windows = [sum(by_second[at : at + _HELD_S]) for at in range(len(by_second) - _HELD_S + 1)]
        return max(windows, default=0) / _HELD_S * self.tokens / sum(self.text.values())

    def error(self, what: str) -> None:
        """Counts a failed answer under a short name."""
        self.errors[what] = self.errors.get(what, 0) + 1

    def summary(self, seconds: float) -> dict[str, Any]:
        """Figures in milliseconds and per second, as JSON."""
        ttft = sorted((record.first - record.sent) * 1000 for record in self.records if record.first)
        gaps = sorted(gap * 1000 for record in self.records for gap in record.gaps)
        return {
            "seconds": round(seconds, 2),
            "finished": self.finished,
            "errors": self.errors,
            "tokens": self.tokens,
            "frames": sum(record.frames for record in self.records),
            "tokens_per_s": round(self.tokens / seconds) if seconds else 0,
            "held_tokens_per_s": round(self.held()),
            "ttft_ms": _percentiles(ttft),
            "itl_ms": _percentiles(gaps),
        }


def reason_of(said: bytes, otherwise: str) -> str:
    """Why an answer failed: the mesh's reason in an error frame or document, in lower case."""
    found = _REASON.search(said)
    return found[1].decode().lower() if found else otherwise


def now() -> float:
    """The clock of all records."""
    return time.perf_counter()


def _percentiles(ordered: list[float]) -> dict[str, float]:
    if not ordered:
        return {}
    return {f"p{q}": round(ordered[min(len(ordered) - 1, len(ordered) * q // 100)], 2) for q in (50, 95, 99)}
