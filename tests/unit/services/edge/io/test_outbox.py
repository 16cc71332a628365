"""Writes are gathered, and what waits for a slow client is bounded."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any, cast

from prometheus_client import CollectorRegistry

from services.edge.io.metrics import EdgeMetrics
from services.edge.io.outbox import ChunkedOutbox, Flusher, Outbox
from streamway.errors import SlowConsumer


class Transport:
    """The few methods of a transport that an outbox uses; `stuck` is a peer that does not read."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.stuck = False
        self.waiting = 0
        self.closing = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        if self.stuck:
            self.waiting += len(data)

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return self.closing


def flusher(**limits: Any) -> Flusher:
    return Flusher(
        EdgeMetrics(CollectorRegistry()), **{"slow_bytes": 100, "slow_s": 0.3, "buffer_bytes": 1000, **limits}
    )


def outbox(transport: Transport, owner: Flusher, over: list[SlowConsumer], kind: type[Outbox] = Outbox) -> Outbox:
    return kind(cast("asyncio.Transport", transport), owner, "test", over.append)


async def test_everything_of_a_batch_leaves_in_one_write() -> None:
    transport, owner = Transport(), flusher()
    box = outbox(transport, owner, [])
    for piece in (b"a", b"b", b"c"):
        box.put(piece)
    assert transport.writes == []
    owner.flush()
    assert transport.writes == [b"abc"]
    assert owner.metrics.bytes["test"] == 3


async def test_outside_of_a_batch_it_leaves_on_the_next_turn() -> None:
    transport = Transport()
    outbox(transport, flusher(), []).put(b"a")
    await asyncio.sleep(0)
    assert transport.writes == [b"a"]


async def test_a_chunked_body_has_one_chunk_a_write() -> None:
    transport, owner = Transport(), flusher()
    box = outbox(transport, owner, [], ChunkedOutbox)
    box.put(b"x" * 10)
    box.put(b"y" * 10)
    owner.flush()
    assert transport.writes == [b"14\r\n" + b"x" * 10 + b"y" * 10 + b"\r\n"]


async def test_too_much_at_once_ends_it_once() -> None:
    transport, over = Transport(), list[SlowConsumer]()
    transport.stuck = True
    box = outbox(transport, flusher(), over)
    for _ in range(3):
        box.put(b"x" * 2000)
        box.flush()
    assert len(over) == 1


async def test_a_client_that_catches_up_in_time_is_kept() -> None:
    transport, over, owner = Transport(), list[SlowConsumer](), flusher()
    transport.stuck = True
    box = outbox(transport, owner, over)
    box.put(b"x" * 200)
    box.flush()
    await asyncio.sleep(0.1)
    transport.waiting = 50
    await asyncio.sleep(0.6)
    assert over == []
    box.put(b"x" * 200)
    box.flush()
    await asyncio.sleep(0.7)
    assert len(over) == 1
    assert owner.metrics.slow_consumers == 1


async def test_a_closed_connection_drops_what_comes() -> None:
    transport = Transport()
    box = outbox(transport, flusher(), [])
    transport.closing = True
    box.put(b"a")
    box.flush()
    box.close()
    box.put(b"b")
    box.flush()
    assert transport.writes == []


async def test_a_closed_outbox_and_its_owner_need_no_cycle_collector() -> None:
    class Owner:
        def __init__(self, owner: Flusher) -> None:
            self.box = Outbox(cast("asyncio.Transport", Transport()), owner, "test", self.over)

        def over(self, _: SlowConsumer) -> None:
            """Makes the cycle that a connection makes."""

    made = Owner(flusher())
    made.box.close()
    ghost = weakref.ref(made)
    gc.disable()
    try:
        del made
        assert ghost() is None
    finally:
        gc.enable()
