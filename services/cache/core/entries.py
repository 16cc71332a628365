"""Entries by key, each tenant in a partition of its own, with an order of its own in which they go when bytes run out.

tenant    key → entry, and the order
largest   heap of (−bytes, tenant): under the limit of all, whose entries take most gives
expiries  heap of (when, id)

What stands in a heap may have changed since; that is seen when its turn comes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from services.cache.core.eviction import Eviction

# What Python needs for an entry beside its body: key, tuples, and places in two ordered dicts and a heap. Measured with
# tracemalloc.
OVERHEAD_BYTES: Final = 700
JITTER: Final = 0.1


@dataclass(slots=True)
class Entry:
    """One stored answer. `body` is opaque here; times are monotonic seconds; `extra_bytes` are what it takes elsewhere.

    `kept_at` is when the store said that it has it, None before; `touched_at` when it was last told of a use; `revoked`: it must
    not have it. `cost` is what making it took,
    in tokens; `tags` and `folded` are what else it is found by.
    """

    id: str
    tenant: str
    key: bytes
    model: str
    body: bytes
    stored_at: float
    expires_at: float
    extra_bytes: int = 0
    cost: float = 1.0
    tags: tuple[str, ...] = ()
    folded: bytes = b""
    kept_at: float | None = None
    touched_at: float = 0.0
    revoked: bool = False

    @property
    def size_bytes(self) -> int:
        """What it takes in memory."""
        return len(self.body) + OVERHEAD_BYTES + self.extra_bytes


@dataclass(slots=True)
class Partition:
    """The entries of one tenant."""

    order: Eviction
    entries: dict[bytes, Entry] = field(default_factory=dict)
    size_bytes: int = 0


class Entries:
    """At most `limit_bytes` in all, and for each tenant `tenant_limit_bytes` or what `bound_of` says, whichever is less (None: it
    says nothing).

    `order` makes a tenant's order. `draw` gives numbers in [0, 1) for the jitter of the time to live, which keeps entries that
    were stored together from expiring together; `new_id` makes ids that nobody can guess. `removed` is told the id of every
    entry that goes.
    """

    def __init__(
        self,
        limit_bytes: int,
        tenant_limit_bytes: int,
        draw: Callable[[], float],
        new_id: Callable[[], str],
        order: Callable[[], Eviction],
        removed: Callable[[str], None] | None = None,
        bound_of: Callable[[str], int | None] = lambda _: None,
    ) -> None:
        self.limit_bytes = limit_bytes
        self._tenant_limit_bytes = min(tenant_limit_bytes, limit_bytes)
        self._bound_of = bound_of
        self._draw = draw
        self._new_id = new_id
        self._order = order
        self._removed = removed
        self._tenants: dict[str, Partition] = {}
        self._by_id: dict[str, Entry] = {}
        self._expiries: list[tuple[float, str]] = []
        self._largest: list[tuple[int, str]] = []
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def tenant_limit_bytes(self, tenant: str) -> int:
        """Most bytes of one tenant's entries."""
        bound = self._bound_of(tenant)
        return self._tenant_limit_bytes if bound is None else min(bound, self._tenant_limit_bytes)

    def partition(self, tenant: str) -> tuple[int, int]:
        """Entries and bytes of one tenant."""
        found = self._tenants.get(tenant)
        return (len(found.entries), found.size_bytes) if found else (0, 0)

    def get(self, tenant: str, key: bytes, now: float) -> Entry | None:
        """The entry, now used once more, unless it is missing or expired."""
        partition = self._tenants.get(tenant)
        entry = partition.entries.get(key) if partition is not None else None
        return self._used(entry, now) if entry is not None else None

    def get_by_id(self, tenant: str, entry_id: str, now: float) -> Entry | None:
        """Like `get`; nothing for another tenant's entry."""
        entry = self.peek(tenant, entry_id)
        return self._used(entry, now) if entry is not None else None

    def put(
        self,
        tenant: str,
        key: bytes,
        model: str,
        body: bytes,
        ttl_s: float,
        now: float,
        *,
        extra_bytes: int = 0,
        cost: float = 1.0,
    ) -> tuple[Entry, list[Entry]]:
        """Stores an answer in place of an older one of the same key; gives it and what was evicted for it.

        The caller has made sure that one entry fits the limits.
        """
        lives_s = ttl_s * (1 - JITTER + 2 * JITTER * self._draw())
        entry = Entry(self._new_id(), tenant, key, model, body, now, now + lives_s, extra_bytes, cost)
        return entry, self.adopt(entry)

    def adopt(self, entry: Entry) -> list[Entry]:
        """Takes an entry that was made elsewhere, or before; gives what was evicted for it."""
        tenant, key = entry.tenant, entry.key
        partition = self._tenants.get(tenant)
        old = partition.entries.get(key) if partition is not None else None
        if old is not None:
            self._remove(old)
        partition = self._tenants.get(tenant)
        if partition is None:
            partition = self._tenants[tenant] = Partition(self._order())
        partition.entries[key] = self._by_id[entry.id] = entry
        partition.order.add(key, entry.size_bytes, entry.cost)
        self.size_bytes += entry.size_bytes
        partition.size_bytes += entry.size_bytes
        self._push_expiry(entry)
        self._push_largest(tenant, partition)
        return self._make_room(tenant, partition)

    def bound(self, limit_bytes: int) -> list[Entry]:
        """What all may have from now on; gives what goes for it."""
        self.limit_bytes = limit_bytes
        return self._fit()

    def has_room(self, tenant: str, size_bytes: int) -> bool:
        """So much more of a tenant would push nothing out."""
        return self.size_bytes + size_bytes <= self.limit_bytes and self.partition(tenant)[
            1
        ] + size_bytes <= self.tenant_limit_bytes(tenant)

    def remove(self, tenant: str, entry_id: str) -> bool:
        """Removes one entry; False for an unknown id, and for another tenant's just the same."""
        entry = self.peek(tenant, entry_id)
        if entry is None:
            return False
        self._remove(entry)
        return True

    def peek(self, tenant: str, entry_id: str) -> Entry | None:
        """The entry as it is; nothing for another tenant's."""
        entry = self._by_id.get(entry_id)
        return entry if entry is not None and entry.tenant == tenant else None

    def knows(self, tenant: str, entry_id: str) -> bool:
        """The tenant has an entry of this id."""
        return self.peek(tenant, entry_id) is not None

    def all(self) -> list[Entry]:
        """What there is now."""
        return list(self._by_id.values())

    def remove_where(self, tenant: str, which: Callable[[Entry], bool]) -> list[Entry]:
        """Removes those of a tenant that `which` says; gives them."""
        partition = self._tenants.get(tenant)
        doomed = [entry for entry in partition.entries.values() if which(entry)] if partition else []
        for entry in doomed:
            self._remove(entry)
        return doomed

    def sweep(self, now: float) -> int:
        """Removes what has expired; gives the number. Costs nothing for what has not."""
        removed = 0
        while self._expiries and self._expiries[0][0] <= now:
            _, entry_id = heapq.heappop(self._expiries)
            entry = self._by_id.get(entry_id)
            if entry is not None:
                self._remove(entry)
                removed += 1
        return removed

    def _used(self, entry: Entry, now: float) -> Entry | None:
        if entry.expires_at <= now:
            self._remove(entry)
            return None
        self._tenants[entry.tenant].order.hit(entry.key)
        return entry

    def _make_room(self, tenant: str, partition: Partition) -> list[Entry]:
        evicted: list[Entry] = []
        limit_bytes = self.tenant_limit_bytes(tenant)
        while partition.size_bytes > limit_bytes and len(partition.entries) > 1:
            evicted.append(self._evict(partition))
        return evicted + self._fit()

    def _fit(self) -> list[Entry]:
        evicted: list[Entry] = []
        while self.size_bytes > self.limit_bytes and len(self._by_id) > 1:
            evicted.append(self._evict(self._largest_partition()))
        return evicted

    def _evict(self, partition: Partition) -> Entry:
        entry = partition.entries[partition.order.evict()]
        self._forget(entry)
        return entry

    def _largest_partition(self) -> Partition:
        while True:
            size, tenant = self._largest[0]
            partition = self._tenants.get(tenant)
            if partition is None:
                heapq.heappop(self._largest)
            elif partition.size_bytes != -size:
                heapq.heapreplace(self._largest, (-partition.size_bytes, tenant))
            else:
                return partition

    def _remove(self, entry: Entry) -> Entry:
        self._tenants[entry.tenant].order.remove(entry.key)
        self._forget(entry)
        return entry

    def _forget(self, entry: Entry) -> None:
        """Its order has let go of it."""
        del self._by_id[entry.id]
        partition = self._tenants[entry.tenant]
        del partition.entries[entry.key]
        partition.size_bytes -= entry.size_bytes
        self.size_bytes -= entry.size_bytes
        if not partition.entries:
            del self._tenants[entry.tenant]
        if self._removed is not None:
            self._removed(entry.id)

    def _push_expiry(self, entry: Entry) -> None:
        heapq.heappush(self._expiries, (entry.expires_at, entry.id))
        # Evicted entries leave their places in the heap behind; when most are such, it is built anew.
        if len(self._expiries) > 2 * len(self._by_id) + 1024:
            self._expiries = [(e.expires_at, e.id) for e in self._by_id.values()]
            heapq.heapify(self._expiries)

    def _push_largest(self, tenant: str, partition: Partition) -> None:
        heapq.heappush(self._largest, (-partition.size_bytes, tenant))
        if len(self._largest) > 2 * len(self._tenants) + 1024:
            self._largest = [(-each.size_bytes, name) for name, each in self._tenants.items()]
            heapq.heapify(self._largest)
