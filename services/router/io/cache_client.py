"""The caches of the mesh as one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import xxhash
from redis.exceptions import RedisError

from services.router.io.cache_link import CacheLink
from services.router.metrics import RouterMetrics
from streamway.config.shared import SharedSettings
from streamway.runtime.clock import Clock
from streamway.runtime.tasks import TaskScope
from streamway.telemetry.hops import Hops
from streamway.v1 import cache_pb2, common_pb2
from streamway.v1.cache_pb2 import CacheOutcome, LookupLevel
from streamway.valkey.connection import Valkey
from streamway.valkey.leases import list_leases


class CacheClient:
    """An `AnswerCache` over the caches that hold a lease, or those of a fixed list.

    A tenant's requests go to one cache as long as it is there, so that what was stored is found.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        valkey: Valkey,
        shared: SharedSettings,
        scope: TaskScope,
        clock: Clock,
        metrics: RouterMetrics,
        hops: Hops,
        *,
        budget_s: float,
        semantic_budget_s: float,
        poll_s: float,
    ) -> None:
        self._static = bool(addresses)
        self._valkey = valkey
        self._shared = shared
        self._scope = scope
        self._clock = clock
        self._metrics = metrics
        self._hops = hops
        self._budget_s = budget_s
        self._semantic_budget_s = semantic_budget_s
        self._poll_s = poll_s
        self._links: dict[str, CacheLink] = {}
        for address in addresses if budget_s else ():
            self._links[address] = self._link(address)

    @property
    def connected(self) -> int:
        """Number of caches that can be asked now."""
        return sum(link.connected for link in self._links.values())

    async def lookup(
        self, request: common_pb2.GenerationRequest, level: LookupLevel.ValueType, budget_s: float | None = None
    ) -> cache_pb2.LookupResponse | None:
        """See `AnswerCache`."""
        link = self._pick(request.tenant)
        if link is None:
            return None
        encodes = request.cache == common_pb2.CACHE_POLICY_SEMANTIC and level != LookupLevel.LOOKUP_LEVEL_KEYED
        if budget_s is None:
            budget_s = self._semantic_budget_s if encodes else self._budget_s
        facts = {"streamway.cache.level": LookupLevel.Name(level).removeprefix("LOOKUP_LEVEL_").lower()}
        sender = self._hops.context(request.traceparent)
        hop = self._hops.begin("cache.lookup", sender, request.generation, kind="client", facts=facts)
        outcome = "cancelled"
        try:
            found = await link.lookup(request, level, budget_s, hop.context.traceparent, blamed=not encodes)
            outcome = _told(found)
            return found
        finally:
            hop.tell({"streamway.cache.outcome": outcome})
            hop.end("answered")

    def store(self, request: common_pb2.GenerationRequest, events: Sequence[common_pb2.Event]) -> None:
        """See `AnswerCache`."""
        link = self._pick(request.tenant)
        if link is not None:
            link.store(request, events)
        else:
            self._stored("dropped")

    async def stats(self, tenant: str) -> cache_pb2.StatsResponse | None:
        """What the cache of a tenant says of it; None where none answers."""
        link = self._pick(tenant)
        return await link.stats(tenant) if link is not None else None

    async def feedback(self, tenant: str, entry: str, good: bool) -> bool | None:
        """Passes an opinion on to the tenant's cache; the others learn of it from that one.

        Whether it has the entry; None when no cache answers. Raises what the cache refuses with.
        """
        link = self._pick(tenant)
        return None if link is None else await link.feedback(tenant, entry, good)

    async def refresh(self) -> None:
        """Looks for caches once. What cannot be read stays as it is."""
        if self._static or not self._budget_s:
            return
        try:
            leases = await list_leases(self._valkey, self._clock, "cachenode")
        except (RedisError, OSError):
            return
        addresses = {fields["address"] for fields in leases.values() if fields.get("address")}
        for address in addresses - self._links.keys():
            self._links[address] = self._link(address)
        for address in self._links.keys() - addresses:
            await self._links.pop(address).close()

    async def run(self) -> None:
        """Looks again and again until cancelled."""
        while True:
            await asyncio.sleep(self._poll_s)
            await self.refresh()

    async def close(self) -> None:
        """Ends every stream."""
        links, self._links = self._links, {}
        for link in links.values():
            await link.close()

    def _pick(self, tenant: str) -> CacheLink | None:
        """Rendezvous hashing over what is connected: a cache that comes or goes moves only its own tenants."""
        connected = [link for link in self._links.values() if link.connected]
        if len(connected) < 2:
            return connected[0] if connected else None
        return max(connected, key=lambda link: xxhash.xxh3_64_intdigest(f"{link.address}\0{tenant}".encode()))

    def _link(self, address: str) -> CacheLink:
        return CacheLink(address, self._shared, self._scope, self._stored)

    def _stored(self, outcome: str) -> None:
        self._metrics.cache_stores.labels(outcome).inc()


def _told(found: cache_pb2.LookupResponse | None) -> str:
    """For the span."""
    return "unanswered" if found is None else CacheOutcome.Name(found.outcome).removeprefix("CACHE_OUTCOME_").lower()
