"""One `AttachClient` for each worker that is read from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from streamway.attach.client import SILENCE_S, AttachClient
from streamway.config.shared import SharedSettings
from streamway.runtime.tasks import TaskScope


class AttachPool:
    """Makes clients on first use and closes those that nothing has used for `idle_s`.

    All clients share `after_batch`. Ask for the client each time: one that was kept may have been closed.
    """

    def __init__(
        self,
        shared: SharedSettings,
        scope: TaskScope,
        *,
        reattach_s: float = 5.0,
        refused_s: float | None = None,
        silence_s: float = SILENCE_S,
        idle_s: float = 60.0,
        after_batch: Callable[[], None] | None = None,
    ) -> None:
        self._shared = shared
        self._scope = scope
        self._reattach_s = reattach_s
        self._refused_s = refused_s
        self._silence_s = silence_s
        self._idle_s = idle_s
        self._after_batch = after_batch
        self._clients: dict[tuple[str, str], AttachClient] = {}
        self._sweeper = scope.spawn(self._sweep(), "attach-sweep")

    def __len__(self) -> int:
        """Number of clients."""
        return len(self._clients)

    @property
    def subscriptions(self) -> int:
        """Live subscriptions of all clients."""
        return sum(len(client) for client in self._clients.values())

    def reading(self, most: int) -> Iterator[tuple[str, int, list[tuple[str, int]]]]:
        """For each worker that something is read from how many subscriptions there are, and up to `most` of the generations."""
        for (_, worker), client in self._clients.items():
            if len(client):
                yield worker, len(client), client.reading(most)

    def client(self, address: str, worker: str) -> AttachClient:
        """The client of a worker at "host:port". A worker that moved has another address and gets another client."""
        found = self._clients.get((address, worker))
        if found is None:
            found = AttachClient(
                address,
                worker,
                self._shared,
                self._scope,
                reattach_s=self._reattach_s,
                refused_s=self._refused_s,
                silence_s=self._silence_s,
                after_batch=self._after_batch,
            )
            self._clients[address, worker] = found
        return found

    def open_to(self, worker: str) -> str:
        """The address at which there is an open stream to a worker, its own or that of a router that relays; "" for none."""
        for (address, name), client in self._clients.items():
            if name == worker and client.connected:
                return address
        return ""

    def idle(self) -> list[AttachClient]:
        """Clients with an open stream that nothing is read by and nothing waits for."""
        return [client for client in self._clients.values() if client.connected and client.idle_s > 0]

    async def drop(self, client: AttachClient) -> None:
        """Closes a client that is idle; who wants that worker next gets another one."""
        key = (client.address, client.worker)
        if self._clients.get(key) is client and client.idle_s > 0:
            del self._clients[key]
            await client.close()

    async def close(self) -> None:
        """Ends every stream. Sinks are not called."""
        self._sweeper.cancel()
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._idle_s / 4)
            for key, client in list(self._clients.items()):
                if client.idle_s >= self._idle_s:
                    del self._clients[key]
                    await client.close()
