"""What waits for the clients of each tenant, against the tenant's soft bound: `buffered_bytes` of its tier or row.

Bytes that were given to a client's connection cannot be taken back, so a tenant over its bound gets no more of them: each of its
clients that has something waiting is paused, however little, until it has read that or the tenant is below its bound. Clients
that keep up are not touched, and nobody else's are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

C = TypeVar("C", bound=Hashable)


class Backlog(Generic[C]):
    """Clients that have something waiting. `bound_of` is what a tenant may have in this process, in bytes; None: any.

    `waiting` tells what waits for a client now: what was noted may have been read since.
    """

    def __init__(self, bound_of: Callable[[str], int | None], waiting: Callable[[C], int]) -> None:
        self._bound_of = bound_of
        self._waiting = waiting
        self._noted: dict[str, dict[C, int]] = {}
        self._sums: dict[str, int] = {}

    def note(self, client: C, tenant: str, waiting: int) -> bool:
        """So much waits for a client, above 0. True: its tenant is over its bound."""
        noted = self._noted.setdefault(tenant, {})
        total = self._sums.get(tenant, 0) + waiting - noted.get(client, 0)
        noted[client], self._sums[tenant] = waiting, total
        bound = self._bound_of(tenant)
        return bound is not None and total > bound and self.over(tenant)

    def over(self, tenant: str) -> bool:
        """The tenant's clients have more waiting than its bound, as of now."""
        bound = self._bound_of(tenant)
        if bound is None or self._sums.get(tenant, 0) <= bound:
            return False
        self._look(tenant)
        return self._sums.get(tenant, 0) > bound

    def clients(self, tenant: str) -> list[C]:
        """Those of a tenant that had something waiting when it was looked at last."""
        return list(self._noted.get(tenant, ()))

    def forget(self, client: C, tenant: str) -> None:
        """It is gone, or has read everything."""
        noted = self._noted.get(tenant)
        if noted is None:
            return
        self._sums[tenant] -= noted.pop(client, 0)
        if not noted:
            del self._noted[tenant], self._sums[tenant]

    def _look(self, tenant: str) -> None:
        now = {client: self._waiting(client) for client in self._noted[tenant]}
        behind = {client: waiting for client, waiting in now.items() if waiting}
        if behind:
            self._noted[tenant], self._sums[tenant] = behind, sum(behind.values())
        else:
            del self._noted[tenant], self._sums[tenant]
