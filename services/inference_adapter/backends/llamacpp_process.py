"""The child process that runs llama.cpp's server, seen from the adapter."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import socket
import sys
import tempfile
import time
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import Final

import structlog

from services.inference_adapter.backends.llamacpp_plan import LlamaPlan
from services.inference_adapter.backends.options import BackendOptions
from services.inference_adapter.core.fitting import Shape
from streamway.runtime.process import StartError
from streamway.runtime.processes import lives
from streamway.runtime.tasks import TaskScope

PROGRESS_INTERVAL_S: Final = 2.0
STOP_GRACE_S: Final = 3.0
# How long a server that has given up may take to say its last lines.
_LAST_LINES_S: Final = 2.0
FOLDER: Final = "streamway-llama-"
_ROOT: Final = Path(__file__).resolve().parents[3]  # what `-m services…` is found from
_log = structlog.get_logger("adapter")


class LlamaProcess:
    """One llama.cpp server on a unix socket in a private folder. `options` has model_path set."""

    def __init__(self, options: BackendOptions) -> None:
        self._options = options
        assert options.model_path is not None
        self._model: Path = options.model_path
        self._folder = Path(tempfile.gettempdir()) / f"{FOLDER}{os.getpid()}-{secrets.token_hex(4)}"
        self._socket = self._folder / "engine.sock"
        self._process: asyncio.subprocess.Process | None = None
        self._scope = TaskScope("llamacpp")
        self._last_lines: deque[str] = deque(maxlen=20)
        self._closing = False

    @property
    def url(self) -> str:
        return f"unix:{self._socket}"

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    async def start(self, name: str, plan: LlamaPlan) -> None:
        """Starts the server and waits until the model is loaded. Raises StartError."""
        try:
            remove_left_folders(self._folder.parent)
            self._folder.mkdir(mode=0o700)
            await self._spawn(name, plan.shape)
            await self._wait_ready(plan.model.bytes)
        except BaseException:
            await self.close()
            raise

    async def _spawn(self, name: str, shape: Shape) -> None:
        cores = cores_of(self._options.cores)
        threads = self._options.threads or len(cores) or compute_threads()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "services.inference_adapter.backends.llamacpp_child"),
            *("--model", str(self._model), "--name", name, "--socket", str(self._socket)),
            *("--shape", json.dumps(asdict(shape))),
            *("--threads", str(threads), "--parent", str(os.getpid())),
            *("--cores", ",".join(map(str, cores))),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=_ROOT,
            env={**os.environ, "GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", "1000")},
        )
        assert self._process.stderr is not None
        self._logging = self._scope.spawn(self._read_log(self._process.stderr), "log")

    async def _read_log(self, lines: asyncio.StreamReader) -> None:
        """Keeps the server's last lines, so that its pipe never fills up; errors and warnings go into our log."""
        while True:
            try:
                line = await lines.readline()
            except ValueError:  # longer than the reader's limit
                continue
            if not line:
                return
            text = line.decode("utf-8", "replace").strip()
            self._last_lines.append(text)
            level = text.split(" ", 2)[1:2]
            if level == ["E"]:
                _log.warning("engine_says", line=text[:500])
            else:
                _log.debug("engine_says", line=text[:500])

    async def _wait_ready(self, size: int) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        began = time.monotonic()
        reading = self._scope.spawn(self._process.stdout.readline(), "ready")
        while not reading.done():
            await asyncio.wait({reading}, timeout=PROGRESS_INTERVAL_S)
            waited = time.monotonic() - began
            if not reading.done():
                _log.info(
                    "engine_loading", model=self._model.name, megabytes=size // 1_000_000, waited_s=round(waited, 1)
                )
            if not reading.done() and waited > self._options.start_timeout_s:
                raise StartError(
                    f"llama.cpp has not loaded {self._model} in {waited:.0f} s; "
                    "raise the setting start_timeout_s or take a smaller model"
                )
        line = reading.result().decode("utf-8", "replace").strip()
        if line != "ready":
            # The reason stands in its log, another pipe, which may not have been read to its end yet.
            await asyncio.wait({self._logging}, timeout=_LAST_LINES_S)
            raise StartError(self._why(line))

    def _why(self, line: str) -> str:
        problem = line.removeprefix("failed ")
        if "xllamacpp" in problem:
            return problem
        errors = [text.split(": ", 1)[-1] for text in self._last_lines if text.split(" ", 2)[1:2] == ["E"]]
        detail = next(iter(errors), problem) or "its process ended"
        return f"llama.cpp cannot load {self._model}: {detail[:300]}; is it a complete GGUF file, and is there memory for it?"

    async def ended(self) -> None:
        """Returns when the process has ended without `close`."""
        assert self._process is not None
        code = await self._process.wait()
        if self._closing:
            await asyncio.Event().wait()
        _log.error("engine_ended", code=code, last=self._last_lines[-1][:500] if self._last_lines else "")

    async def close(self) -> None:
        """Ends the process and removes its folder."""
        self._closing = True
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                async with asyncio.timeout(STOP_GRACE_S):
                    await process.wait()
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        await self._scope.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def cores_of(words: str) -> list[int]:
    """0-2,8 → 0, 1, 2, 8. Raises StartError for cores that this process may not use."""
    cores: set[int] = set()
    for word in filter(None, words.split(",")):
        first, _, last = word.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    if cores and not (hasattr(os, "sched_getaffinity") and cores <= os.sched_getaffinity(0)):
        raise StartError(f"the setting cores names {words}, and not all of these can be used here; give others or none")
    return sorted(cores)


def compute_threads() -> int:
    """One for each core that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def remove_left_folders(parent: Path) -> None:
    """Removes the folders of servers that were killed together with their adapter: ones whose socket nobody answers on. One of
    an adapter that lives may be starting just now."""
    for path in parent.glob(f"{FOLDER}*/engine.sock"):
        adapter = path.parent.name.removeprefix(FOLDER).partition("-")[0]
        if adapter.isdecimal() and lives(int(adapter)):
            continue
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                shutil.rmtree(path.parent, ignore_errors=True)
