"""Prefix affinity: a request goes where most of its prompt's beginning was sent before, unless waiting there costs more.

The router does not see the engines' KV caches. It notes what it sent where: prompts are cut into blocks, each named by the hash
of its bytes chained to the name before, so that equal names mean equal beginnings of one tenant's prompts to one model.

    prompt   |-- 256 bytes --|-- 256 bytes --|-- 90 --|
    names    h1 = H(b1, seed) h2 = H(b2, h1)  (no name: not full)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import xxhash

from services.router.core.bounded import has_room
from services.router.core.decision import Branch, Candidate, Decision, Reason, Wanted
from services.router.core.moves import Home
from services.router.core.pool import Pool
from services.router.core.sessions import Stay
from streamway.v1 import common_pb2

BLOCK_TOKENS: Final = 64
_BLOCK_BYTES: Final = BLOCK_TOKENS * 4
# What is longer is told apart by its first 128 KiB well enough.
_MOST_BLOCKS: Final = 512
# So many of those with the longest match are compared.
_MOST_COMPARED: Final = 64


def block_names(request: common_pb2.GenerationRequest) -> tuple[int, ...]:
    """Names of the full blocks of a request's prompt."""
    limit = _MOST_BLOCKS * _BLOCK_BYTES
    prompt = request.openai_body[:limit]
    if request.messages:
        parts, size = [], 0
        for message in request.messages:
            part = message.role.encode() + b"\0" + message.content[:limit].encode() + b"\0"
            parts.append(part)
            size += len(part)
            if size >= limit:
                break
        prompt = b"".join(parts)[:limit]
    name = xxhash.xxh3_64_intdigest(f"{request.tenant}\0{request.model}".encode())
    names = []
    for at in range(0, len(prompt) - _BLOCK_BYTES + 1, _BLOCK_BYTES):
        name = xxhash.xxh3_64_intdigest(prompt[at : at + _BLOCK_BYTES], name)
        names.append(name)
    return tuple(names)


class PrefixIndex:
    """Which workers were sent which blocks: at most `most` pairs, those that were used longest ago make room."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pairs: OrderedDict[tuple[int, str], None] = OrderedDict()
        self._holders: dict[int, set[str]] = {}

    def __len__(self) -> int:
        return len(self._pairs)

    def note(self, blocks: Iterable[int], worker: str) -> None:
        """A prompt was sent to a worker."""
        # From the end: what all prompts begin with is used last and stays longest.
        for block in reversed(tuple(blocks)):
            self._pairs[block, worker] = None
            self._pairs.move_to_end((block, worker))
            self._holders.setdefault(block, set()).add(worker)
        while len(self._pairs) > self._most:
            (block, holder), _ = self._pairs.popitem(last=False)
            holders = self._holders[block]
            holders.discard(holder)
            if not holders:
                del self._holders[block]

    def matches(self, blocks: tuple[int, ...]) -> list[tuple[int, str]]:
        """Workers with the number of first blocks each was sent, the most first, some dozens at most."""
        found: list[tuple[int, str]] = []
        alive: set[str] = set()
        for depth, block in enumerate(blocks):
            holders = self._holders.get(block, set())
            if depth == 0:
                alive = set(holders)
            elif not alive <= holders:
                found += [(depth, worker) for worker in alive - holders]
                alive &= holders
            if not alive:
                break
        found += [(len(blocks), worker) for worker in alive]
        found.sort(reverse=True)
        return found[:_MOST_COMPARED]

    def forget_all_but(self, workers: set[str]) -> None:
        """Workers that are gone have nothing any more."""
        for block, worker in [pair for pair in self._pairs if pair[1] not in workers]:
            del self._pairs[block, worker]
            self._holders[block].discard(worker)
            if not self._holders[block]:
                del self._holders[block]


class PrefixAffinity:
    """The strategy. Home is the worker with the longest match; loads are bounded as on the ring."""

    wants_blocks = True

    def __init__(self, index: PrefixIndex, *, factor: float = 1.25, floor: int = 4) -> None:
        self._index = index
        self._factor = factor
        self._floor = floor
        self._workers: set[str] = set()

    def knows(self, wanted: Wanted, now: float) -> bool:
        """Nothing is to be learned."""
        return True

    def learn(self, wanted: Wanted, stay: Stay) -> None:
        """Of no use here."""

    def choose(self, wanted: Wanted, pool: Pool, now: float) -> Decision:
        """Chooses; changes nothing."""
        least = pool.least(wanted.lane, wanted.barred)
        if least is None:
            return Decision.nobody(any_open=pool.any_open)
        matches = [(depth, pool[worker]) for depth, worker in self._index.matches(wanted.blocks) if worker in pool]
        if not matches:
            return Decision.unkeyed(least.worker, wanted.tokens)
        home = matches[0][1]
        best, cached, reason = least, 0, Reason.LEAST
        lowest = self._cost_ms(least, wanted, 0)
        for depth, candidate in matches:
            mine = wanted.tokens_beside(depth * BLOCK_TOKENS)
            cost = self._cost_ms(candidate, wanted, depth * BLOCK_TOKENS)
            better = cost < lowest or (cost == lowest and reason is Reason.LEAST)
            if better and has_room(candidate, wanted, pool, mine, self._factor, self._floor):
                best, cached, reason, lowest = candidate, depth * BLOCK_TOKENS, Reason.PREFIX, cost
        branch = Branch.HOME
        if best is not home:
            branch = Branch.SPILL if home.open and home.worker not in wanted.barred else Branch.MOVED
        return Decision(best.worker, branch, reason, home.worker, wanted.tokens_beside(cached))

    def placed(self, wanted: Wanted, decision: Decision, now: float) -> Stay | None:
        """Notes the blocks where they were sent."""
        if decision.worker:
            self._index.note(wanted.blocks, decision.worker)
        return None

    def homes(self, pool_of: Callable[[str], Pool | None], most: int) -> Iterator[Home]:
        """Nobody's home can be told ahead."""
        return iter(())

    def keep_only(self, models: set[str], workers: set[str]) -> None:
        """Forgets workers that are gone."""
        if not self._workers <= workers:
            self._index.forget_all_but(workers)
        self._workers = set(workers)

    def _cost_ms(self, candidate: Candidate, wanted: Wanted, cached: int) -> float:
        return candidate.wait_ms + max(0, wanted.prompt_tokens - cached) * candidate.prefill_ms
