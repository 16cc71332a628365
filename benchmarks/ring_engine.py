"""A llama.cpp in a process of its own whose tokens come through a ring in shared memory; for `benchmarks.engine_bridge`.

    adapter ──a line on a pipe──► engine: a thread for each slot, handle_chat_completions(body, heard)
       ▲                                      │ heard(chunk)
       └── ChunkReader ◄── Ring.take ◄── Ring.put: shared memory, eventfd

The same native calls as inside the adapter's process, and the same reader there.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final, cast

from benchmarks.shared_ring import CHUNK, END, Ring
from services.inference_adapter.backends.llamacpp_child import configure
from services.inference_adapter.backends.openai_http.body import OurFields, build
from services.inference_adapter.backends.openai_http.chunks import ChunkReader, counted
from services.inference_adapter.core.fitting import Shape
from services.inference_adapter.interfaces import EngineSink
from streamway.errors import EngineFailed
from streamway.runtime.processes import die_with_parent
from streamway.v1 import common_pb2

_ROOT: Final = Path(__file__).resolve().parents[1]
_SLOTS: Final = 4
# As inside: a cancel in prefill would ride on it.
_OURS: Final = OurFields({"return_progress": True}, "", "")


class RingEngine:
    """What the benchmark uses of a backend. With `dropped` its engine throws every chunk away and says only that it has ended."""

    def __init__(self, model: Path, folder: str, threads: int, *, dropped: bool) -> None:
        self._streams: list[tuple[ChunkReader, EngineSink]] = []
        self._dropped = dropped
        memory, wake = Ring.descriptors()
        self._ring = Ring(memory, wake)
        given = {"parent": os.getpid(), "model": str(model), "socket": f"{folder}/e.sock", "threads": threads}
        self._server = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.ring_engine"],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(memory, wake),
        )
        self.pid = self._server.pid
        self.bytes = 0
        self._tell({**given, "memory": memory, "wake": wake, "dropped": dropped})

    async def start(self) -> None:
        """Waits for the model."""
        assert self._server.stdout is not None
        if self._server.stdout.readline() != b"ready\n":
            raise EngineFailed("ring", "its process did not start")
        asyncio.get_running_loop().add_reader(self._ring.wake, self._woken)

    def call(self, request: common_pb2.GenerationRequest, sink: EngineSink) -> None:
        """One answer."""
        self._tell([len(self._streams), build(request, request.model, ours=_OURS).decode()])
        self._streams.append((ChunkReader(sink), sink))
        sink.started()

    def _tell(self, what: Any) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(what).encode() + b"\n")
        self._server.stdin.flush()

    def _woken(self) -> None:
        os.eventfd_read(self._ring.wake)
        for kind, stream, data in self._ring.take():
            reader, sink = self._streams[stream]
            self.bytes += len(data)
            if kind == CHUNK:
                reader.read(cast("bytes", data))  # its decoders read any buffer
            elif self._dropped or reader.ended:
                sink.ended(counted(reader.usage, 0))
            else:
                sink.failed(EngineFailed("ring", "its stream ended in the middle of the answer"))

    async def close(self) -> None:
        """Ends the process."""
        asyncio.get_running_loop().remove_reader(self._ring.wake)
        self._server.kill()
        self._server.wait()


def serve() -> None:
    """The engine's process: what it is told comes as lines."""
    given = json.loads(sys.stdin.readline())
    die_with_parent(given["parent"])
    os.environ["GOMP_SPINCOUNT"] = "1000"  # before llama.cpp is loaded, as in services/
    import xllamacpp

    shape = Shape(_SLOTS, 1024, 1024)
    native: Any = xllamacpp
    settings = configure(
        native, model=given["model"], name="m", socket=given["socket"], threads=given["threads"], shape=shape
    )
    settings.verbosity = 1
    server = native.Server(settings)
    ring = Ring(given["memory"], given["wake"])
    asked: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()

    def work() -> None:
        while True:
            stream, body = asked.get()

            def heard(chunk: bytes, stream: int = stream) -> bool:
                if not given["dropped"]:
                    ring.put(CHUNK, stream, chunk)
                return False

            server.handle_chat_completions(body.encode(), heard)
            ring.put(END, stream, b"")

    for _ in range(_SLOTS):
        threading.Thread(target=work, daemon=True).start()
    print("ready", flush=True)
    for line in sys.stdin:
        asked.put(tuple(json.loads(line)))
    os._exit(0)


if __name__ == "__main__":
    serve()
