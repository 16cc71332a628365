"""AttachClient against a real gRPC server: batches, breaks, duplicates, workers that go and come back."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable

import pytest

from streamway.attach import AttachClient, AttachPool
from streamway.attach.reaching import refuses
from streamway.config import SharedSettings
from streamway.errors import EventsExpired, StreamwayError, Unauthenticated, WorkerLost
from streamway.journal import Cursor
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2
from streamway.v1.inference_pb2 import View
from tests.support.inference_service import HandServer, HandWorker, failed, finished, started, token
from tests.support.ports import free_port

# What comes next is position 2 of the first engine call.
BEGUN = Cursor(1 << 20, 1)


class Collector:
    """A sink that keeps what it got."""

    def __init__(self) -> None:
        self.events: list[common_pb2.Event] = []
        self.kinds: list[str] = []
        self.error: StreamwayError | None = None
        self.delivered_until = -1
        self.gaps = 0

    def event(self, event: common_pb2.Event, kind: str) -> None:
        self.events.append(event)
        self.kinds.append(kind)

    def lost(self, error: StreamwayError, delivered_until: int) -> None:
        self.error, self.delivered_until = error, delivered_until

    def gap(self) -> None:
        self.gaps += 1

    @property
    def positions(self) -> list[int]:
        return [event.position for event in self.events]


class Failing(Collector):
    def event(self, event: common_pb2.Event, kind: str) -> None:
        raise ValueError("a bug in a sink")


async def until(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture
def shared() -> SharedSettings:
    return SharedSettings()


@pytest.fixture
async def scope() -> AsyncIterator[TaskScope]:
    async with TaskScope("test") as scope:
        yield scope


async def test_events_arrive_in_order_and_the_subscription_ends_with_the_terminal_one(
    shared: SharedSettings, scope: TaskScope
) -> None:
    worker = HandWorker()
    server = HandServer(worker, shared)
    batches: list[int] = []
    client = AttachClient(await server.start(), "w", shared, scope, after_batch=lambda: batches.append(1))
    sink = Collector()
    client.subscribe("g", Cursor(0, 1), View.VIEW_LIVE, sink)
    worker.push("g", started())
    await until(lambda: sink.kinds == ["started"])
    worker.push("g", token(3, "a"), token(4, "b"), finished(5))
    await until(lambda: sink.kinds == ["started", "token", "token", "finished"])
    assert sink.positions == [2, 3, 4, 5]
    assert len(batches) == 2, "after_batch is called once for each batch"
    assert len(client) == 0
    assert worker.streams == 1
    await client.close()
    await server.stop()


async def test_many_subscriptions_cross_in_few_messages(shared: SharedSettings, scope: TaskScope) -> None:
    worker = HandWorker()
    server = HandServer(worker, shared)
    client = AttachClient(await server.start(), "w", shared, scope)
    sinks = [Collector() for _ in range(2500)]
    for number, sink in enumerate(sinks):
        worker.events[f"g{number}"] = [token(2, "x"), finished(3)]
        client.subscribe(f"g{number}", BEGUN, View.VIEW_LIVE, sink)
    await until(lambda: all(sink.kinds for sink in sinks))
    assert worker.messages == 3
    assert all(sink.positions == [2, 3] for sink in sinks)
    await client.close()
    await server.stop()


async def test_a_broken_stream_is_opened_again_after_the_last_position_and_repeats_are_dropped(
    shared: SharedSettings, scope: TaskScope
) -> None:
    worker = HandWorker(repeat=2)
    server = HandServer(worker, shared)
    client = AttachClient(await server.start(), "w", shared, scope)
    sink = Collector()
    client.subscribe("g", Cursor(0, 1), View.VIEW_LIVE, sink)
    worker.push("g", started(), token(3, "a"), token(4, "b"))
    await until(lambda: len(sink.events) == 3)
    worker.break_streams()
    worker.events["g"] += [token(5, "c")]
    await until(lambda: len(sink.events) == 4)
    worker.push("g", finished(6))
    await until(lambda: sink.kinds[-1] == "finished")
    assert sink.positions == [2, 3, 4, 5, 6]
    assert [subscribe.after for subscribe in worker.subscribed] == [1, 4]
    assert worker.streams == 2
    await client.close()
    await server.stop()


async def test_a_worker_that_returns_within_the_time_goes_on(shared: SharedSettings, scope: TaskScope) -> None:
    worker, port = HandWorker(), free_port()
    server = HandServer(worker, shared, port)
    client = AttachClient(await server.start(), "w", shared, scope)
    sink = Collector()
    client.subscribe("g", BEGUN, View.VIEW_LIVE, sink)
    worker.push("g", token(2, "a"))
    await until(lambda: len(sink.events) == 1)
    await server.stop()
    await asyncio.sleep(1.0)
    server = HandServer(worker, shared, port)
    await server.start()
    worker.push("g", token(3, "b"), finished(4))
    await until(lambda: sink.kinds[-1] == "finished")
    assert sink.positions == [2, 3, 4]
    assert sink.error is None
    await client.close()
    await server.stop()


async def test_a_worker_that_is_gone_for_good_tells_every_reader_how_far_it_got(
    shared: SharedSettings, scope: TaskScope
) -> None:
    worker = HandWorker()
    server = HandServer(worker, shared)
    flushed: list[int] = []
    client = AttachClient(
        await server.start(), "adapter-7", shared, scope, reattach_s=0.6, after_batch=lambda: flushed.append(1)
    )
    read, unread = Collector(), Collector()
    client.subscribe("g", BEGUN, View.VIEW_LIVE, read)
    client.subscribe("h", Cursor(0, 1), View.VIEW_OUTCOME, unread)
    worker.push("g", token(2, "a"), token(3, "b"))
    await until(lambda: len(read.events) == 2)
    flushed.clear()
    await server.stop()
    await until(lambda: read.error is not None and unread.error is not None)
    assert isinstance(read.error, WorkerLost)
    assert "adapter-7" in read.error.message
    assert (read.delivered_until, unread.delivered_until) == (3, 1)
    assert flushed == [1]
    assert len(client) == 0
    await client.close()


async def test_a_worker_that_refuses_connections_is_lost_before_the_time_is_over(
    shared: SharedSettings, scope: TaskScope
) -> None:
    worker = HandWorker()
    server = HandServer(worker, shared)
    client = AttachClient(await server.start(), "adapter-7", shared, scope, reattach_s=60.0, refused_s=0.2)
    sink = Collector()
    client.subscribe("g", BEGUN, View.VIEW_LIVE, sink)
    worker.push("g", token(2, "a"))
    await until(lambda: len(sink.events) == 1)
    await server.stop()
    await until(lambda: sink.error is not None, 20.0)
    assert isinstance(sink.error, WorkerLost)
    assert sink.delivered_until == 2
    await client.close()


async def test_what_listens_and_says_nothing_does_not_refuse(shared: SharedSettings, scope: TaskScope) -> None:
    """A machine behind a slow network, or a process that is stopped: it has its time."""
    silent = socket.create_server(("127.0.0.1", 0))
    host, port = silent.getsockname()
    assert not await refuses(f"{host}:{port}")
    client = AttachClient(f"{host}:{port}", "w", shared, scope, reattach_s=1.5, refused_s=0.05)
    sink = Collector()
    client.subscribe("g", BEGUN, View.VIEW_LIVE, sink)
    await asyncio.sleep(0.7)
    assert sink.error is None
    await until(lambda: sink.error is not None, 20.0)
    await client.close()
    silent.close()
    assert await refuses(f"{host}:{port}")
    assert not await refuses("no-port")


async def test_after_a_loss_the_client_serves_new_subscriptions(shared: SharedSettings, scope: TaskScope) -> None:
    worker, port = HandWorker(), free_port()
    client = AttachClient(f"127.0.0.1:{port}", "w", shared, scope, reattach_s=0.3)
    sink = Collector()
    client.subscribe("g", BEGUN, View.VIEW_LIVE, sink)
    await until(lambda: sink.error is not None)
    server = HandServer(worker, shared, port)
    await server.start()
    worker.events["g"] = [token(2, "a"), finished(3)]
    again: list[Collector] = []

    def served() -> bool:
        # A channel that was refused waits up to a second before it tries once more, longer than this client has patience.
        if not again or again[-1].error is not None:
            again.append(Collector())
            client.subscribe("g", BEGUN, View.VIEW_LIVE, again[-1])
        return again[-1].kinds == ["token", "finished"]

    await until(served, 20)
    await client.close()
    await server.stop()


async def test_a_cancel_reaches_the_worker_also_through_a_break(shared: SharedSettings, scope: TaskScope) -> None:
    worker, port = HandWorker(), free_port()
    client = AttachClient(f"127.0.0.1:{port}", "w", shared, scope)
    sink = Collector()
    client.subscribe("g", BEGUN, View.VIEW_LIVE, sink)
    client.cancel("g")
    client.cancel("not-subscribed")
    await asyncio.sleep(0.2)
    server = HandServer(worker, shared, port)
    await server.start()
    await until(lambda: {"g", "not-subscribed"} <= set(worker.cancelled))
    worker.break_streams()
    await until(lambda: worker.streams == 2 and worker.cancelled.count("g") >= 2)
    assert worker.cancelled.count("not-subscribed") == 1
    worker.push("g", failed(2, WorkerLost("w")))
    await until(lambda: sink.kinds == ["error"])
    await client.close()
    await server.stop()


async def test_unsubscribe_stops_delivery_and_tells_the_worker(shared: SharedSettings, scope: TaskScope) -> None:
    worker = HandWorker()
    server = HandServer(worker, shared)
    client = AttachClient(await server.start(), "w", shared, scope)
    gone, stays = Collector(), Collector()
    number = client.subscribe("g", BEGUN, View.VIEW_LIVE, gone)
    client.subscribe("g", BEGUN, View.VIEW_LIVE, stays)
    worker.push("g", token(2, "a"))
    await until(lambda: len(gone.events) == len(stays.events) == 1)
    client.unsubscribe(number)
    client.unsubscribe(number)
    worker.push("g", finished(3))
    await until(lambda: stays.kinds[-1] == "finished")
    assert gone.kinds == ["token"]
    await until(lambda: any(command.HasField("unsubscribe") for command in worker.commands))
    await client.close()
    await server.stop()


async def test_a_sink_that_raises_ends_alone(shared: SharedSettings, scope: TaskScope) -> None:
    worker = HandWorker()
    server = HandServer(worker, shared)
    client = AttachClient(await server.start(), "w", shared, scope)
    bad, good = Failing(), Collector()
    client.subscribe("g", BEGUN, View.VIEW_LIVE, bad)
    client.subscribe("g", BEGUN, View.VIEW_LIVE, good)
    worker.push("g", token(2, "a"), finished(3))
    await until(lambda: good.kinds == ["token", "finished"])
    assert bad.error is not None
    assert bad.error.name == "internal"
    assert worker.streams == 1
    await client.close()
    await server.stop()


async def test_views_are_passed_on(shared: SharedSettings, scope: TaskScope) -> None:
    worker = HandWorker()
    server = HandServer(worker, shared)
    client = AttachClient(await server.start(), "w", shared, scope)
    outcome, complete = Collector(), Collector()
    client.subscribe("g", Cursor(0, 1), View.VIEW_OUTCOME, outcome, wait_ms=700)
    client.subscribe("g", Cursor(0, 1), View.VIEW_COMPLETE, complete)
    await until(lambda: len(worker.subscribed) == 2)
    worker.push("g", started(), token(3, "a"))
    worker.push("g", finished(4))
    await until(lambda: outcome.positions == [4] and complete.positions == [2, 3, 4])
    assert worker.subscribed[0].wait_ms == 700
    await client.close()
    await server.stop()


async def test_a_worker_that_refuses_the_credentials_is_not_asked_again(scope: TaskScope) -> None:
    with_token = SharedSettings(mesh_token="secret")
    worker = HandWorker()
    server = HandServer(worker, with_token)
    client = AttachClient(await server.start(), "w", SharedSettings(mesh_token="wrong"), scope)
    sink = Collector()
    client.subscribe("g", BEGUN, View.VIEW_LIVE, sink)
    await until(lambda: sink.error is not None)
    assert isinstance(sink.error, Unauthenticated)
    await client.close()
    await server.stop()


async def test_the_pool_keeps_one_client_for_each_worker_and_closes_idle_ones(
    shared: SharedSettings, scope: TaskScope
) -> None:
    worker = HandWorker()
    server = HandServer(worker, shared)
    address = await server.start()
    pool = AttachPool(shared, scope, idle_s=0.2)
    client = pool.client(address, "w")
    assert pool.client(address, "w") is client
    assert pool.client(address, "other") is not client
    sink = Collector()
    client.subscribe("g", BEGUN, View.VIEW_LIVE, sink)
    await until(lambda: len(pool) == 1)
    await asyncio.sleep(0.4)
    assert pool.client(address, "w") is client, "a client with a subscription is not idle"
    worker.push("g", finished(2))
    await until(lambda: len(pool) == 0)
    assert sink.kinds == ["finished"]
    await pool.close()
    await server.stop()


async def test_a_hole_is_told_and_ends_the_subscription(shared: SharedSettings, scope: TaskScope) -> None:
    worker = HandWorker()
    server = HandServer(worker, shared)
    client = AttachClient(await server.start(), "w", shared, scope)
    sink, other = Collector(), Collector()
    client.subscribe("g", BEGUN, View.VIEW_LIVE, sink)
    client.subscribe("h", BEGUN, View.VIEW_LIVE, other)
    worker.push("g", token(2, "a"), token(4, "c"), finished(5))
    worker.push("h", token(2, "a"), finished(3))
    await until(lambda: other.kinds == ["token", "finished"])
    assert (sink.positions, sink.gaps, sink.error) == ([2], 1, None)
    assert len(client) == 0
    await client.close()
    await server.stop()


async def test_a_takeover_is_followed_along_its_line_and_the_replaced_worker_is_not_heard(
    shared: SharedSettings, scope: TaskScope
) -> None:
    one, two = 1 << 20, 2 << 20
    worker = HandWorker()
    server = HandServer(worker, shared)
    client = AttachClient(await server.start(), "w", shared, scope)
    sink, elsewhere = Collector(), Collector()
    client.subscribe("g", BEGUN, View.VIEW_LIVE, sink)
    client.subscribe("h", BEGUN, View.VIEW_LIVE, elsewhere)
    taken = common_pb2.TakenOver(worker="w2", line=f"0:1,{one}:2,{two}:3")
    over = common_pb2.Event(position=3, epoch=two, taken_over=taken)
    worker.push("g", token(2, "a", one), over, token(3, "old", one), token(4, "b", two), finished(5, two))
    worker.push("h", token(2, "a", one), token(3, "b", one), over)
    await until(lambda: sink.kinds[-1:] == ["finished"] and elsewhere.gaps == 1)
    assert sink.positions == [2, 3, 4, 5]
    assert elsewhere.positions == [2, 3], "its text is not on the line of the one that took over"
    await client.close()
    await server.stop()


async def test_the_cursor_goes_with_a_subscription_and_an_error_about_it_is_passed_on(
    shared: SharedSettings, scope: TaskScope
) -> None:
    worker = HandWorker()
    server = HandServer(worker, shared)
    client = AttachClient(await server.start(), "w", shared, scope)
    sink = Collector()
    client.subscribe("g", Cursor(2 << 20, 7), View.VIEW_LIVE, sink)
    await until(lambda: len(worker.subscribed) == 1)
    assert (worker.subscribed[0].after, worker.subscribed[0].after_epoch) == (7, 2 << 20)
    worker.push("g", failed(8, EventsExpired("g"), 0))
    await until(lambda: sink.kinds == ["error"])
    assert len(client) == 0
    await client.close()
    await server.stop()


async def test_a_silent_worker_is_given_up(shared: SharedSettings, scope: TaskScope) -> None:
    """A stopped process answers nothing, and nothing breaks."""
    worker = HandWorker()
    server = HandServer(worker, shared)
    client = AttachClient(await server.start(), "w", shared, scope, reattach_s=60.0, silence_s=0.8)
    sink = Collector()
    client.subscribe("g", BEGUN, View.VIEW_LIVE, sink)
    worker.push("g", token(2, "a"))
    began = asyncio.get_running_loop().time()
    await until(lambda: sink.error is not None, 30.0)
    assert isinstance(sink.error, WorkerLost)
    assert worker.streams == 2, "it is asked once more"
    assert asyncio.get_running_loop().time() - began > 0.7
    await client.close()
    await server.stop()


async def test_signs_of_life_keep_a_quiet_stream(shared: SharedSettings, scope: TaskScope) -> None:
    worker = HandWorker()
    server = HandServer(worker, shared)
    client = AttachClient(await server.start(), "w", shared, scope, silence_s=1.0)
    sink = Collector()
    client.subscribe("g", BEGUN, View.VIEW_LIVE, sink)
    await until(lambda: worker.streams == 1)
    for _ in range(15):
        await asyncio.sleep(0.1)
        worker.beat()
    assert sink.error is None
    assert worker.streams == 1
    await client.close()
    await server.stop()


async def test_a_process_that_itself_stood_still_reads_what_came_before_it_judges(
    shared: SharedSettings, scope: TaskScope
) -> None:
    worker = HandWorker()
    server = HandServer(worker, shared)
    client = AttachClient(await server.start(), "w", shared, scope, silence_s=0.6)
    sink = Collector()
    client.subscribe("g", BEGUN, View.VIEW_LIVE, sink)
    await until(lambda: worker.streams == 1)
    worker.push("g", token(2, "a"))
    time.sleep(1.0)
    await until(lambda: bool(sink.kinds))
    worker.push("g", finished(3))
    await until(lambda: sink.kinds == ["token", "finished"])
    assert worker.streams == 1
    await client.close()
    await server.stop()
