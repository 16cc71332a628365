"""A router that dies stalls no stream: real router and adapter processes, the simulated engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from redis.asyncio import Redis

from streamway.attach import AttachClient
from streamway.config import SharedSettings
from streamway.errors import StreamwayError
from streamway.journal import Cursor
from streamway.rpc import mesh_metadata, open_channel
from streamway.runtime.clock import SystemClock
from streamway.runtime.tasks import TaskScope
from streamway.v1 import common_pb2, router_pb2_grpc
from streamway.v1.inference_pb2 import View
from streamway.valkey.leases import list_leases
from tests.support.router_mesh import ConnectStream, ask, until
from tests.support.valkey_server import ValkeyServer


class Reader:
    """Positions of one generation, and when each came."""

    def __init__(self) -> None:
        self.positions: list[tuple[int, int]] = []
        self.times: list[float] = []
        self.end = ""

    def event(self, event: common_pb2.Event, kind: str) -> None:
        self.positions.append((event.first_position or event.position, event.position))
        self.times.append(time.monotonic())
        if kind in ("finished", "error"):
            self.end = kind

    def lost(self, error: StreamwayError, delivered_until: int) -> None:
        self.end = "lost"

    def gap(self) -> None:
        self.end = "gap"


@contextlib.contextmanager
def _process(folder: Path, url: str, service: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "STREAMWAY_VALKEY_URL": url}
    with (folder / f"{service}.log").open("wb") as log:
        command = [sys.executable, "-m", f"services.{service}", "--port", "0", "--operations-port", "0", *arguments]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait(10)


async def _leased(valkey: Redis, kind: str, id_: str) -> str:
    async with asyncio.timeout(40):
        while True:
            fields = (await list_leases(valkey, SystemClock(), kind)).get(id_)
            if fields:
                return fields["address"]
            await asyncio.sleep(0.05)


async def test_killing_the_router_stalls_no_stream_that_is_read_from_a_worker(
    valkey: Redis, valkey_server: ValkeyServer, tmp_path: Path
) -> None:
    url = valkey_server.url
    shared = SharedSettings(valkey_url=url)
    simulation = json.dumps({"tokens_per_s": 50})
    adapter = _process(
        tmp_path, url, "inference_adapter", "--worker", "w0", "--backend", "simulated", "--simulation", simulation
    )
    with adapter, _process(tmp_path, url, "router", "--id", "r0") as router:
        await _leased(valkey, "worker", "w0")
        address = await _leased(valkey, "router", "r0")
        async with TaskScope("test") as scope:
            channel = open_channel(address, shared)
            stub = router_pb2_grpc.RouterServiceStub(channel)
            stream = ConnectStream(stub.Connect(metadata=mesh_metadata(shared)))
            request = ask("Tell me something.", model="simulated")
            request.limits.max_tokens = 150
            await asyncio.sleep(0.6)  # the router may have looked for workers just before this one came
            accepted = (await stream.first(await stream.open(request), 10)).accepted
            assert accepted.source, stream.events
            client = AttachClient(accepted.source, accepted.worker, shared, scope)
            reader = Reader()
            client.subscribe(request.generation, Cursor(0, 1), View.VIEW_LIVE, reader)
            await until(lambda: len(reader.positions) > 10, 10)

            os.kill(router.pid, signal.SIGKILL)
            killed, seen = time.monotonic(), len(reader.positions)
            router.wait(10)
            await until(lambda: reader.end != "", 15)

            assert reader.end == "finished"
            assert len(reader.positions) > seen + 20
            expected = 2
            for first, last in reader.positions:
                assert first == expected, "no gap and no repetition"
                expected = last + 1
            gaps = [after - before for before, after in zip(reader.times, reader.times[1:], strict=False)]
            assert max(gaps) < 2.0, "20 ms apart; a stall would show"
            assert reader.times[-1] > killed
            await client.close()
            await stream.close()
            await channel.close()
