"""The KV cache of a simulated engine: blocks of tokens, shared by their content.

A block's name is the hash of its bytes chained to the name of the block before it, so that equal names mean equal prefixes:

    prompt   |-- 16 tokens --|-- 16 tokens --|-- 7 --|
    names    h1 = H(b1, 0)   h2 = H(b2, h1)   (no name: not full)

A block is held by the sequences that use it; one that nobody holds stays, and goes when its room is needed, the longest
unused first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from xxhash import xxh3_64_intdigest

# The simulator has no tokenizer: four bytes of a prompt count as one token, about what English text has.
BYTES_PER_TOKEN: Final = 4


def tokens_in(prompt: bytes) -> int:
    """Tokens that a prompt counts."""
    return max(1, -(-len(prompt) // BYTES_PER_TOKEN))


def block_names(prompt: bytes, block_tokens: int) -> list[int]:
    """Names of the full blocks of a prompt."""
    size = block_tokens * BYTES_PER_TOKEN
    names: list[int] = []
    name = 0
    for at in range(0, len(prompt) - size + 1, size):
        name = xxh3_64_intdigest(prompt[at : at + size], name)
        names.append(name)
    return names


class KVCache:
    """Counts `capacity` blocks."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._holders: dict[int, int] = {}  # named blocks in use, and by how many sequences
        self._unused: OrderedDict[int, None] = OrderedDict()  # named blocks that nobody holds, longest unused first
        self._unnamed = 0  # blocks in use that are not full, or belong to an answer under way

    @property
    def held(self) -> int:
        """Blocks in use."""
        return len(self._holders) + self._unnamed

    @property
    def used_ratio(self) -> float:
        """Share of the blocks in use, 0 … 1."""
        return self.held / self._capacity

    def matched(self, names: Sequence[int]) -> int:
        """How many of the first blocks are there."""
        for count, name in enumerate(names):
            if name not in self._holders and name not in self._unused:
                return count
        return len(names)

    def take(self, names: Sequence[int], unnamed: int) -> bool:
        """Holds these blocks, making room where needed; False, and nothing is held, when there is no room."""
        fresh = sum(1 for name in names if name not in self._holders)
        if self.held + fresh + unnamed > self._capacity:
            return False
        for name in names:
            self._holders[name] = self._holders.get(name, 0) + 1
            self._unused.pop(name, None)
        self._unnamed += unnamed
        self._shrink()
        return True

    def give_back(self, names: Sequence[int], unnamed: int, computed: Sequence[int]) -> None:
        """Ends what `take` began. Blocks of `computed` stay for whoever has the same prefix; others are forgotten."""
        for name in names:
            left = self._holders[name] - 1
            if left:
                self._holders[name] = left
            else:
                del self._holders[name]
        self._unnamed -= unnamed
        for name in reversed(computed):  # the end of a prefix goes before its beginning, without which it is of no use
            if name not in self._holders:
                self._unused[name] = None
                self._unused.move_to_end(name)
        self._shrink()

    def _shrink(self) -> None:
        while self.held + len(self._unused) > self._capacity:
            self._unused.popitem(last=False)
