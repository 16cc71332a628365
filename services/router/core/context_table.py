"""Contexts in memory, packed: a table with a bound of sessions and a budget of bytes.

    (tenant, name) ─► Kept   version   the turn it ends with: what the store says has another one is not used
                             opening   the tenant's other sessions with the same system messages have the same chain
                             chain     its turns

What is given up here is in the store still, and costs a read. What a running turn has leased is never given up. Over nine
tenths of the budget, or of what its tenant may have buffered, it goes down to eight, by LRU-2; for a tenant's bound only its own
contexts go.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import xxhash

from services.router.core import context_codec as codec
from services.router.core.context_blocks import BLOCK_BYTES, Blocks, Chain
from streamway.runtime.lru_k import LruK

_HIGH: Final = 0.9
_LOW: Final = 0.8


class Name(NamedTuple):
    """Of a context: no two tenants have the same one."""

    tenant: str
    digest: str


@dataclass(slots=True)
class _Opening:
    """System messages that several contexts of one tenant begin with."""

    chain: Chain
    holders: int = 0


@dataclass(slots=True)
class _Kept:
    version: str
    opening: int | None
    chain: Chain
    tail_at: int
    raw_bytes: int


@dataclass(slots=True)
class _Share:
    """What one tenant has here."""

    names: set[Name] = field(default_factory=set)
    openings: dict[int, _Opening] = field(default_factory=dict)
    bytes: int = 0


class ContextTable:
    """See the module. `bound_of` gives what a tenant may have, None: no bound; `evicted` hears why something went."""

    def __init__(
        self,
        most: int,
        budget_bytes: int,
        bound_of: Callable[[str], int | None],
        evicted: Callable[[str], None],
        *,
        correlated_s: float = 3.0,
        retained_s: float = 7_200.0,
        idle_s: float = 120.0,
    ) -> None:
        self._most = most
        self._budget_bytes = budget_bytes
        self._bound_of = bound_of
        self._evicted = evicted
        self._idle_s = idle_s
        self._uses: LruK[Name] = LruK(correlated_s, retained_s)
        self._blocks = Blocks()
        self._kept: dict[Name, _Kept] = {}
        self._shares: dict[str, _Share] = {}
        # Turns run whose context is not here yet, or no more.
        self._leases: dict[Name, int] = {}
        self.raw_bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, name: object) -> bool:
        return name in self._kept

    @property
    def used_bytes(self) -> int:
        """Of the blocks in use."""
        return self._blocks.used_bytes

    def tenant_bytes(self, tenant: str) -> int:
        """Of the blocks that one tenant's contexts use."""
        share = self._shares.get(tenant)
        return share.bytes if share is not None else 0

    def version(self, name: Name) -> str:
        """The turn that is the last one here; empty where there is none."""
        kept = self._kept.get(name)
        return kept.version if kept is not None else ""

    def get(self, name: Name, now: float) -> list[bytes] | None:
        """The segments of a context, and a use of it. None: it is not here."""
        kept = self._kept.get(name)
        if kept is None:
            return None
        self._uses.used(name, now)
        return self._segments(name, kept)

    def peek(self, name: Name) -> list[bytes] | None:
        """The same without a use of it."""
        kept = self._kept.get(name)
        return self._segments(name, kept) if kept is not None else None

    def tenants(self, least: int) -> list[str]:
        """Those who have at least so many contexts here."""
        return [tenant for tenant, share in self._shares.items() if len(share.names) >= least]

    def latest(self, tenant: str, most: int, least_bytes: int) -> list[Name]:
        """A tenant's contexts of at least so many bytes of text, those used last."""
        share = self._shares.get(tenant)
        long = (name for name in share.names if self._kept[name].raw_bytes >= least_bytes) if share else ()
        return heapq.nlargest(most, long, key=lambda name: (self._uses.last(name), name))

    def put(self, name: Name, version: str, segments: Sequence[bytes], now: float) -> None:
        """Keeps a context in the place of what is known of it. One that is larger than the budget is not kept."""
        self._remove(name)
        size = sum(map(len, segments))
        if not segments or size > self._budget_bytes * _LOW:
            self._uses.forget(name)
            return
        share = self._shares.setdefault(name.tenant, _Share())
        kept = _Kept(version, None, Chain(), 0, sum(map(codec.raw_bytes_of, segments)))
        turns = list(segments)
        if codec.is_opening(turns[0]):
            kept.opening = self._share_opening(share, turns.pop(0))
        for turn in turns:
            kept.tail_at = kept.chain.length
            self._blocks.append(kept.chain, turn)
        share.bytes += len(kept.chain.blocks) * BLOCK_BYTES
        share.names.add(name)
        self._kept[name] = kept
        self.raw_bytes += kept.raw_bytes
        self._uses.used(name, now)
        self._shrink(name, now)

    def extend(self, name: Name, before: str, version: str, segment: bytes, now: float, *, anew: bool) -> bool:
        """Adds a turn; `anew`: `segment` has the last one's text too. False: that context is not here."""
        kept = self._kept.get(name)
        if kept is None or kept.version != before:
            return False
        share, blocks = self._shares[name.tenant], len(kept.chain.blocks)
        added = codec.raw_bytes_of(segment)
        if anew:
            added -= codec.raw_bytes_of(self._blocks.read(kept.chain)[kept.tail_at :])
            self._blocks.shorten(kept.chain, kept.tail_at)
        else:
            kept.tail_at = kept.chain.length
        self._blocks.append(kept.chain, segment)
        share.bytes += (len(kept.chain.blocks) - blocks) * BLOCK_BYTES
        kept.version = version
        kept.raw_bytes += added
        self.raw_bytes += added
        self._uses.used(name, now)
        self._shrink(name, now)
        return True

    def lease(self, name: Name) -> None:
        """A turn of it runs: it stays until that is over."""
        self._leases[name] = self._leases.get(name, 0) + 1

    def release(self, name: Name) -> None:
        """One turn less."""
        left = self._leases.get(name, 0) - 1
        if left > 0:
            self._leases[name] = left
        else:
            self._leases.pop(name, None)

    def drop(self, name: Name) -> None:
        """It was deleted, or is not what the store has."""
        self._remove(name)
        self._uses.forget(name)

    def sweep(self, now: float) -> int:
        """Gives up what was used once and not for a while. Returns how many."""
        idle = [
            name
            for name in self._kept
            if self._uses.once(name) and now - self._uses.last(name) >= self._idle_s and name not in self._leases
        ]
        for name in idle:
            self._give_up(name, "idle", now)
        return len(idle)

    def bound(self, budget_bytes: int, now: float) -> None:
        """What all may have from now on."""
        self._budget_bytes = budget_bytes
        self._fit(now)

    def give_up_largest(self, part: float, now: float) -> int:
        """Gives up contexts that no turn runs on and none has used for `idle_s`, the largest first, until `part` (0 … 1) of what
        is in use is free or none is left. Returns how many."""
        enough, given = self.used_bytes * (1 - part), 0
        idle = [name for name in self._kept if name not in self._leases and now - self._uses.last(name) >= self._idle_s]
        for name in sorted(idle, key=lambda name: -len(self._kept[name].chain.blocks)):
            if self.used_bytes <= enough:
                break
            self._give_up(name, "memory", now)
            given += 1
        return given

    def _segments(self, name: Name, kept: _Kept) -> list[bytes]:
        segments = codec.split(self._blocks.read(kept.chain))
        if kept.opening is not None:
            opening = self._shares[name.tenant].openings[kept.opening]
            segments.insert(0, self._blocks.read(opening.chain))
        return segments

    def _share_opening(self, share: _Share, segment: bytes) -> int:
        key = xxhash.xxh3_128_intdigest(segment)
        opening = share.openings.get(key)
        if opening is None:
            opening = share.openings[key] = _Opening(Chain())
            self._blocks.append(opening.chain, segment)
            share.bytes += len(opening.chain.blocks) * BLOCK_BYTES
        opening.holders += 1
        return key

    def _shrink(self, mine: Name, now: float) -> None:
        share, bound = self._shares[mine.tenant], self._bound_of(mine.tenant)
        if bound is not None and share.bytes > bound * _HIGH:
            for name in sorted(share.names - self._leases.keys(), key=self._uses.rank):
                if share.bytes <= bound * _LOW:
                    break
                self._give_up(name, "tenant", now)
        while len(self._kept) > self._most and self._evict("sessions", now):
            pass
        self._fit(now)

    def _fit(self, now: float) -> None:
        if self.used_bytes > self._budget_bytes * _HIGH:
            while self.used_bytes > self._budget_bytes * _LOW and self._evict("budget", now):
                pass

    def _evict(self, why: str, now: float) -> bool:
        victim = self._uses.victim(self._leases.__contains__)
        if victim is None:
            return False
        self._give_up(victim, why, now)
        return True

    def _give_up(self, name: Name, why: str, now: float) -> None:
        self._remove(name)
        self._uses.give_up(name, now)
        self._evicted(why)

    def _remove(self, name: Name) -> None:
        kept = self._kept.pop(name, None)
        if kept is None:
            return
        share = self._shares[name.tenant]
        share.names.discard(name)
        share.bytes -= len(kept.chain.blocks) * BLOCK_BYTES
        self._blocks.shorten(kept.chain, 0)
        self.raw_bytes -= kept.raw_bytes
        if kept.opening is not None:
            opening = share.openings[kept.opening]
            opening.holders -= 1
            if not opening.holders:
                share.bytes -= len(opening.chain.blocks) * BLOCK_BYTES
                self._blocks.shorten(opening.chain, 0)
                del share.openings[kept.opening]
        if not share.names:
            del self._shares[name.tenant]
