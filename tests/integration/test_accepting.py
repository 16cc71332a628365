"""Edges on one listening socket share what comes."""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from services.edge.io.accepting import Acceptor
from services.edge.io.connection_counts import ConnectionCounts
from streamway.runtime.process import StartError
from streamway.runtime.tasks import TaskScope

_SLOTS = 2


@pytest.fixture
def counts() -> Iterator[Callable[[int], ConnectionCounts]]:
    with tempfile.TemporaryFile() as file:
        file.truncate(8 * _SLOTS)
        yield lambda slot: ConnectionCounts(file.fileno(), slot)


class _Edge:
    """What an edge is here: it counts who is connected."""

    def __init__(self, listening: socket.socket, scope: TaskScope, counts: ConnectionCounts | None) -> None:
        self.connected = 0
        self.port: int = listening.getsockname()[1]
        self.acceptor = Acceptor(listening, lambda: _Connection(self), scope, counts)


class _Connection(asyncio.Protocol):
    def __init__(self, edge: _Edge) -> None:
        self._edge = edge

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._edge.connected += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._edge.connected -= 1
        self._edge.acceptor.left()


@asynccontextmanager
async def _edges(counts: list[ConnectionCounts | None], kind: Any = socket.socket) -> AsyncIterator[list[_Edge]]:
    with socket.create_server(("127.0.0.1", 0)) as public:
        scope = TaskScope("test")
        made = []
        for each in counts:
            listening = kind(fileno=public.dup().detach())
            listening.setblocking(False)
            made.append(_Edge(listening, scope, each))
            made[-1].acceptor.start()
        try:
            yield made
        finally:
            for edge in made:
                edge.acceptor.close()
            await scope.close()


async def _connect(edges: list[_Edge], count: int, before: int = 0) -> list[asyncio.StreamWriter]:
    port = edges[0].port
    opened = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(count)))
    async with asyncio.timeout(20):
        while sum(edge.connected for edge in edges) < before + count:
            await asyncio.sleep(0.01)
    return [writer for _, writer in opened]


async def test_two_edges_have_as_many_connections(counts: Callable[[int], ConnectionCounts]) -> None:
    async with _edges([counts(0), counts(1)]) as edges:
        writers = await _connect(edges, 40)
        assert abs(edges[0].connected - edges[1].connected) <= 2
        for writer in writers:
            writer.close()


async def test_connections_that_end_are_told(counts: Callable[[int], ConnectionCounts]) -> None:
    other = counts(1)
    async with _edges([counts(0)]) as edges:
        writers = await _connect(edges, 10)
        assert other.least_of_others() == 10
        for writer in writers[:8]:
            writer.close()
        async with asyncio.timeout(20):
            while other.least_of_others() != 2:
                await asyncio.sleep(0.01)
        for writer in writers[8:]:
            writer.close()


async def test_an_edge_that_stands_keeps_nobody_waiting(counts: Callable[[int], ConnectionCounts]) -> None:
    counts(1).publish(0)  # a living process that never accepts
    async with _edges([counts(0)]) as edges:
        for writer in await _connect(edges, 200):
            writer.close()


def test_an_edge_that_died_does_not_count() -> None:
    code = "import sys;from services.edge.io.connection_counts import ConnectionCounts as C;C(int(sys.argv[1]),1).publish(3)"
    with tempfile.TemporaryFile() as file:
        file.truncate(8 * _SLOTS)
        fd = file.fileno()
        mine = ConnectionCounts(fd, 0)
        subprocess.run([sys.executable, "-c", code, str(fd)], pass_fds=[fd], check=True)
        assert mine.least_of_others() is None


def test_one_that_drains_does_not_count(counts: Callable[[int], ConnectionCounts]) -> None:
    mine, other = counts(0), counts(1)
    other.publish(7)
    assert mine.least_of_others() == 7
    other.withdraw()
    assert mine.least_of_others() is None


@pytest.mark.parametrize(("descriptor", "slot"), [(None, _SLOTS), (None, -1), (999, 0)])
def test_a_file_without_that_slot_is_refused(descriptor: int | None, slot: int) -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate(8 * _SLOTS)
        with pytest.raises(StartError, match="STREAMWAY_EDGE_COUNTS_FD"):
            ConnectionCounts(file.fileno() if descriptor is None else descriptor, slot)


class _NoDescriptorsAtFirst(socket.socket):
    """The kernel has no descriptor for the first who comes."""

    refusals = 1

    def accept(self) -> Any:
        if self.refusals:
            self.refusals -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_without_descriptors_it_tries_again() -> None:
    async with _edges([None], _NoDescriptorsAtFirst) as edges:
        for writer in await _connect(edges, 3):
            writer.close()
