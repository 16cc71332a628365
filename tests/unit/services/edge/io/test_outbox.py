"""Writes are gathered, and what waits for a slow client is bounded."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any, cast

from prometheus_client import CollectorRegistry

from services.edge.io.metrics import EdgeMetrics
from services.edge.io.outbox import ChunkedOutbox, Flusher, Outbox
from streamway.errors import SlowConsumer
from tests.support.virtual_time import in_virtual_time


class Transport:
    """The few methods of a transport that an outbox uses; `stuck` is a peer that does not read."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.stuck = False
        self.waiting = 0
        self.closing = False
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        if self.stuck:
            self.waiting += len(data)

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.aborted = True


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


@in_virtual_time
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


class Paused:
    """What can be stopped: remembers being paused and going on."""

    def __init__(self, able: bool = True, tenant: str = "") -> None:
        self.able = able
        self.tenant = tenant
        self.calls: list[str] = []

    def pause(self) -> bool:
        self.calls.append("pause")
        return self.able

    def go_on(self) -> None:
        self.calls.append("go_on")


def pausable(transport: Transport, owner: Flusher, over: list[SlowConsumer], paused: Paused) -> Outbox:
    return Outbox(cast("asyncio.Transport", transport), owner, "test", over.append, paused)


@in_virtual_time
async def test_what_has_a_channel_is_paused_and_goes_on_when_a_quarter_is_left() -> None:
    transport, over, paused = Transport(), list[SlowConsumer](), Paused()
    transport.stuck = True
    box = pausable(transport, flusher(stuck_s=5), over, paused)
    box.put(b"x" * 150)
    assert paused.calls == ["pause"]
    assert box.paused
    transport.waiting = 30
    await asyncio.sleep(0.15)
    assert paused.calls == ["pause"]
    transport.waiting = 25
    await asyncio.sleep(0.15)
    assert paused.calls == ["pause", "go_on"]
    assert not box.paused
    assert over == []


async def test_one_batch_does_not_bring_more_than_may_wait() -> None:
    transport, paused = Transport(), Paused()
    transport.stuck = True
    box = pausable(transport, flusher(), [], paused)
    for _ in range(20):
        if box.paused:
            break
        box.put(b"x" * 30)
    assert transport.waiting <= 130


@in_virtual_time
async def test_a_paused_client_that_takes_something_is_kept_and_one_that_takes_nothing_is_closed() -> None:
    transport, over, paused = Transport(), list[SlowConsumer](), Paused()
    transport.stuck = True
    box = pausable(transport, flusher(stuck_s=0.3), over, paused)
    box.put(b"x" * 200)
    for _ in range(4):
        await asyncio.sleep(0.2)
        transport.waiting -= 10
    assert over == []
    await asyncio.sleep(0.6)
    assert len(over) == 1
    assert paused.calls == ["pause"]


@in_virtual_time
async def test_what_cannot_be_paused_keeps_its_old_rule() -> None:
    transport, over, paused = Transport(), list[SlowConsumer](), Paused(able=False)
    transport.stuck = True
    box = pausable(transport, flusher(slow_s=0.2), over, paused)
    box.put(b"x" * 200)
    box.flush()
    await asyncio.sleep(0.5)
    assert len(over) == 1


@in_virtual_time
async def test_a_paused_client_that_leaves_is_forgotten() -> None:
    transport, over, paused = Transport(), list[SlowConsumer](), Paused()
    transport.stuck = True
    box = pausable(transport, flusher(stuck_s=0.1), over, paused)
    box.put(b"x" * 200)
    box.close()
    await asyncio.sleep(0.3)
    assert over == []
    assert paused.calls == ["pause"]


@in_virtual_time
async def test_c4_what_waits_for_a_half_closed_client_is_dropped_with_its_connection() -> None:
    transport, over = Transport(), list[SlowConsumer]()
    transport.stuck = True
    box = outbox(transport, flusher(slow_s=60), over)
    box.put(b"x" * 200)
    transport.closing = True
    async with asyncio.timeout(20):
        while not transport.aborted:
            await asyncio.sleep(0.01)
    assert not over
    assert box.closed


async def test_c4_a_half_closed_client_gets_nothing_more() -> None:
    transport, owner = Transport(), flusher()
    box = outbox(transport, owner, [])
    transport.closing = True
    box.put(b"late")
    owner.flush()
    assert transport.aborted
    assert transport.writes == []


async def test_what_was_paused_beside_what_cannot_be_goes_on_when_the_client_has_caught_up() -> None:
    transport, over, paused = Transport(), list[SlowConsumer](), Paused(able=False)
    transport.stuck = True
    box = pausable(transport, flusher(slow_s=60), over, paused)
    box.put(b"x" * 200)
    transport.waiting = 0
    await _until(lambda: paused.calls == ["pause", "go_on"])
    assert not over


async def test_a_tenant_over_its_bound_has_those_of_its_clients_paused_that_are_behind_and_nobody_elses() -> None:
    owner = flusher(slow_bytes=100, stuck_s=60, bound_of={"loud": 100}.get)
    made = {name: (Transport(), Paused(tenant=name.split()[0])) for name in ("loud 1", "loud 2", "loud 3", "quiet 1")}
    boxes = {name: pausable(transport, owner, [], paused) for name, (transport, paused) in made.items()}

    def send(name: str, size: int) -> None:
        boxes[name].put(b"x" * size)
        boxes[name].flush()

    for name in ("loud 1", "loud 2", "quiet 1"):
        made[name][0].stuck = True
    send("loud 1", 60)
    send("loud 3", 90)
    send("quiet 1", 90)
    assert not any(box.paused for box in boxes.values()), "within its bound, and a client that keeps up"
    send("loud 2", 60)
    assert {name for name, box in boxes.items() if box.paused} == {"loud 1", "loud 2"}
    assert owner.metrics.tenant_pauses == 2
    # One has read all; with it the tenant is within its bound, and the other may have a quarter left.
    made["loud 1"][0].waiting, made["loud 2"][0].waiting = 0, 25
    await _until(lambda: not any(box.paused for box in boxes.values()))
    assert made["loud 2"][1].calls == ["pause", "go_on"]
    assert made["loud 3"][1].calls == made["quiet 1"][1].calls == []


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)
