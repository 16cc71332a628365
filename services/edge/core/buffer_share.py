"""How the memory that a process sets aside for streams is shared between what goes out and what has come in.

    stream memory   |------ output buffers: min(0.7, 0.3 + 0.025 × tokens/s) ------|-- prompts, request state: the rest --|
                     a stream's cap: its part, within 4 and 256 KiB                 requests that no router has yet

Fast streams fill their buffers while a client stalls, slow ones hardly do. Numbers are settings.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShareRules:
    """`memory_bytes` for all streams together; output gets `least` of it and `per_token` more for each token a second of the mean
    stream, at most `most`. A stream's cap is between `floor_bytes` and `ceiling_bytes`."""

    memory_bytes: int
    ceiling_bytes: int
    floor_bytes: int = 4096
    least: float = 0.3
    per_token: float = 0.025
    most: float = 0.7


@dataclass(frozen=True, slots=True)
class Shares:
    """`output` is the part for output buffers, 0 … 1; `stream_bytes` the cap of one; `request_bytes` is the rest."""

    output: float
    stream_bytes: int
    request_bytes: int


def shares(rules: ShareRules, streams: int, tokens_per_s: float) -> Shares:
    """With so many streams, and tokens a second of all of them together."""
    mean = tokens_per_s / streams if streams else 0.0
    output = min(rules.most, rules.least + rules.per_token * mean)
    part = int(rules.memory_bytes * output) // max(1, streams)
    cap = min(rules.ceiling_bytes, max(rules.floor_bytes, part))
    return Shares(output, cap, rules.memory_bytes - int(rules.memory_bytes * output))


class RequestRoom:
    """Bytes of the requests that no router has yet, and how many there may be."""

    __slots__ = ("held_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0

    def admits(self, size_bytes: int) -> bool:
        """There is room for one more. A single one is always let in: its size has a limit of its own."""
        return not self.held_bytes or self.held_bytes + size_bytes <= self.limit_bytes
