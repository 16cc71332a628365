"""Answers of a busy process that are read by the clock, over real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from services.inference_adapter.backends.openai_http.backend import OpenAIHTTPBackend
from services.inference_adapter.backends.openai_http.sweep import Sweep
from services.inference_adapter.backends.options import BackendOptions
from streamway.errors import EngineFailed
from streamway.v1 import common_pb2
from tests.support.busy import wanting
from tests.support.engines import Piece, RecordingSink

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: str) -> bytes:
    event = f"data: {data}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(event), event)


def token(text: str, finish: str | None = None) -> bytes:
    return chunk(json.dumps({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}))


OVER = chunk("[DONE]") + b"0\r\n\r\n"


class Engine:
    """Answers when the test says so, each request on the connection it came on."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
        self.connections = 0
        self.gone = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().split(b"content-length:")[1].split(b"\r\n")[0]
                await reader.readexactly(int(length))
                self.asked.put_nowait(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.gone.set()
        finally:
            writer.close()


class Reader:
    """Counts how often it is told to read."""

    reads = 0

    def read(self, fd: int) -> None:
        self.reads += 1


class Answers:
    """A backend whose process is as busy as the test says, and the engine behind it."""

    def __init__(self, engine: Engine, backend: OpenAIHTTPBackend, sweep: Sweep) -> None:
        self.engine, self.backend, self.sweep = engine, backend, sweep

    async def ask(self) -> tuple[RecordingSink, asyncio.StreamWriter]:
        sink = RecordingSink()
        self.call = self.backend.call(common_pb2.GenerationRequest(model="m", openai_body=b"{}"), sink)
        writer = await self.engine.asked.get()
        writer.write(HEAD)
        return sink, writer

    async def flowing(self) -> tuple[RecordingSink, asyncio.StreamWriter]:
        """An answer whose first two pieces have come, so that the rest is read by the clock where anything is."""
        sink, writer = await self.ask()
        for number, text in enumerate("ab", 1):
            writer.write(token(text))
            while len(sink.pieces) < number:
                await asyncio.sleep(0.001)
        return sink, writer


@asynccontextmanager
async def answers(share: float = 0.9) -> AsyncIterator[Answers]:
    engine = Engine()
    server = await asyncio.start_server(engine.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    sweep = Sweep(0.5, wanting(share))
    sweep.drive(lambda: None)
    options = BackendOptions.model_validate({"kind": "openai_http", "url": url, "keep_alive": True})
    backend = OpenAIHTTPBackend(options, "w-1", sweep=sweep)
    try:
        yield Answers(engine, backend, sweep)
    finally:
        await backend.close()
        sweep.close()
        server.close()


def text(sink: RecordingSink) -> str:
    return "".join(piece.text for piece in sink.pieces)


async def test_first_words_come_at_once_and_the_rest_by_the_clock() -> None:
    async with answers() as made:
        sink, writer = await made.flowing()
        assert made.sweep.wanted
        writer.write(token("c") + token("d"))
        await asyncio.sleep(0.1)
        assert text(sink) == "ab"
        assert made.sweep.read() is False
        assert text(sink) == "abcd"
        writer.write(token("e", "stop") + OVER)
        await asyncio.sleep(0.1)
        made.sweep.read()
        assert (text(sink), sink.ended_count, made.sweep.wanted) == ("abcde", 1, False)
        # The same connection, read as data comes until its next answer flows.
        again, writer = await made.ask()
        writer.write(token("x", "stop") + OVER)
        await again.wait(10)
        assert (text(again), made.engine.connections) == ("x", 1)


async def test_a_process_with_little_to_do_reads_each_as_it_comes() -> None:
    async with answers(share=0.4) as made:
        sink, writer = await made.flowing()
        assert not made.sweep.wanted
        writer.write(token("c", "stop") + OVER)
        await sink.wait(10)
        assert text(sink) == "abc"


async def test_while_work_waits_for_a_slot_the_end_of_an_answer_is_seen_at_once() -> None:
    async with answers() as made:
        made.sweep.unless(lambda: True)
        sink, writer = await made.flowing()
        writer.write(token("c", "stop") + OVER)
        await sink.wait(10)
        assert (text(sink), made.sweep.wanted) == ("abc", False)


async def test_a_number_that_is_another_socket_s_by_now_is_left_to_it() -> None:
    sweep = Sweep(0.0, wanting(0.9))
    sweep.drive(lambda: None)
    gone, there = Reader(), Reader()
    first, second = socket.socketpair()
    with first, second:
        assert sweep.add(first.fileno(), there)
        sweep.discard(first.fileno(), gone)
        second.send(b"x")
        sweep.read()
        assert (gone.reads, there.reads) == (0, 1)
        sweep.discard(first.fileno(), there)
        sweep.read()
        assert there.reads == 1
    sweep.close()


async def test_before_anybody_ticks_nothing_waits_for_a_tick() -> None:
    sweep = Sweep(0.0, wanting(0.9))
    assert sweep.add(0, Reader()) is False
    sweep.close()


async def test_an_engine_that_breaks_off_is_seen_at_the_next_tick() -> None:
    async with answers() as made:
        sink, writer = await made.flowing()
        writer.write(token("c"))
        writer.close()
        await asyncio.sleep(0.1)
        assert text(sink) == "ab"
        while not sink.over.is_set():
            made.sweep.read()
            await asyncio.sleep(0.001)
        assert text(sink) == "abc"
        assert isinstance(sink.error, EngineFailed)
        assert "broke" in sink.error.message
        assert not made.sweep.wanted


async def test_an_aborted_answer_is_told_nothing_more_and_its_engine_sees_it() -> None:
    async with answers() as made:
        sink, writer = await made.flowing()
        writer.write(token("c"))
        await asyncio.sleep(0.05)
        made.call.abort()
        assert not made.sweep.wanted
        made.sweep.read()
        await asyncio.wait_for(made.engine.gone.wait(), 10)
        assert (text(sink), sink.over.is_set()) == ("ab", False)


async def test_a_fault_in_one_answer_leaves_the_others_alone() -> None:
    async with answers() as made:
        bad, bad_writer = await made.flowing()
        good, good_writer = await made.flowing()

        def refuse(piece: Piece) -> None:
            raise RuntimeError("no room")

        bad.on_piece = refuse
        bad_writer.write(token("c"))
        good_writer.write(token("c", "stop") + OVER)
        await asyncio.sleep(0.1)
        made.sweep.read()
        await good.wait(10)
        await bad.wait(10)
        assert text(good) == "abc"
        assert isinstance(bad.error, EngineFailed)


@pytest.mark.parametrize("size", [10, 65_536 - len(token("")), 1_000_000])
async def test_pieces_of_any_size_are_read_whole(size: int) -> None:
    async with answers() as made:
        sink, writer = await made.flowing()
        writer.write(token("c" * size) + token("", "stop") + OVER)
        while not sink.over.is_set():
            made.sweep.read()
            await asyncio.sleep(0.001)
        assert text(sink) == "ab" + "c" * size


async def test_of_many_sockets_some_are_read_and_then_the_others() -> None:
    async with answers() as made:
        all_of_them = [await made.flowing() for _ in range(200)]
        for _, writer in all_of_them:
            writer.write(token("c"))
        await asyncio.sleep(0.3)
        assert made.sweep.read() is True
        read = [text(sink) for sink, _ in all_of_them].count("abc")
        assert read == 128
        while made.sweep.read():
            pass
        assert [text(sink) for sink, _ in all_of_them].count("abc") == 200
