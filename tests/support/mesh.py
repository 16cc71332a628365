"""A whole mesh for a test: what `streamway up` starts for everybody, on free ports, in a folder of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import aiohttp

from tests.support.commands import PROGRAM, Forked, Forks
from tests.support.ports import free_port

# For meshes none of whose processes is stopped in order while somebody is served: nobody has to notice that they stop.
ENDS_SOON = {"STREAMWAY_EDGE_DRAIN_SERVE_S": "0", "STREAMWAY_ADAPTER_DRAIN_NOTICE_S": "0"}


class MeshProcesses:
    """Starts `streamway up` and knows where its processes are. `close` drains it."""

    # What it is forked from where that is set, as pytest does for its whole run: a second less for each mesh.
    forks: ClassVar[Callable[[], Forks] | None] = None

    def __init__(
        self,
        folder: Path,
        *,
        engine: str = "simulated",
        arguments: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        start_s: float = 120.0,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._ready_file = folder / "ready.json"
        self.data_dir = folder / "data"
        self._log = (folder / "mesh.log").open("wb")
        self.log_path = folder / "mesh.log"
        words = ["up", "--engine", engine, "--port", "0"]
        words += ["--data-dir", str(self.data_dir), "--ready-file", str(self._ready_file), *arguments]
        self._process = self._start(words, {**os.environ, **(environment or {})})
        try:
            self._wait(start_s)
        except BaseException:
            self._log.close()
            raise

    @property
    def pid(self) -> int:
        """The supervisor."""
        return self._process.pid

    @property
    def ready(self) -> dict[str, Any]:
        """The ready file as it is now; rewritten after a restart."""
        content: dict[str, Any] = json.loads(self._ready_file.read_text(encoding="utf-8"))
        return content

    @property
    def edge_url(self) -> str:
        return str(self.ready["edge"]["url"]).rstrip("/")

    @property
    def websocket_url(self) -> str:
        return self.edge_url.replace("http", "ws", 1) + "/v1/stream"

    def address(self, name: str) -> str:
        """gRPC address of "router-0", "adapter-0" or "cache-0"."""
        return str(self._row(name)["address"])

    def pid_of(self, name: str) -> int:
        """Process id of one process now."""
        return int(self._row(name)["pid"])

    async def metrics(self, name: str, accept: str = "text/plain") -> str:
        """What one process shows on its operations port."""
        url = f"http://{self._row(name)['operations']}/metrics"
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, headers={"Accept": accept}) as response,
        ):
            return await response.text()

    def names(self) -> list[str]:
        return [row["name"] for row in self.ready["processes"]]

    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        """Signals one process; returns its pid."""
        pid = self.pid_of(name)
        os.kill(pid, number)
        return pid

    async def restarted(self, name: str, old_pid: int, within_s: float = 60.0) -> None:
        """Waits until the supervisor has put a new process in the place of `old_pid`."""
        until = time.monotonic() + within_s
        while name not in self.names() or self.pid_of(name) == old_pid:
            assert time.monotonic() < until, f"{name} did not come back; log:\n{self.log()[-3000:]}"
            await asyncio.sleep(0.05)

    def close(self) -> int:
        """SIGTERM to the supervisor, which drains; returns its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        finally:
            self._log.close()

    def _start(self, words: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes] | Forked:
        if self.forks is None:
            command = [sys.executable, "-m", PROGRAM, *words]
            return subprocess.Popen(command, env=environment, stdout=self._log, stderr=subprocess.STDOUT)
        with Path(os.devnull).open("rb") as nothing:
            return self.forks().start(PROGRAM, words, environment, nothing, self._log, self._log)

    def _row(self, name: str) -> dict[str, Any]:
        for row in self.ready["processes"]:
            if row["name"] == name:
                found: dict[str, Any] = row
                return found
        raise KeyError(f"no process {name}; there are {self.names()}")

    def _wait(self, start_s: float) -> None:
        until = time.monotonic() + start_s
        while not self._ready_file.exists():
            if self._process.poll() is not None or time.monotonic() > until:
                self._process.kill()
                self._process.wait()
                raise AssertionError(f"the mesh did not come up:\n{self.log()[-5000:]}")
            time.sleep(0.05)


class EngineServer:
    """The simulated engine as an OpenAI-compatible server in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.simulated_engine", "--port", str(self.port), *arguments],
            stdout=subprocess.DEVNULL,
        )
        until = time.monotonic() + 60
        while True:
            try:
                import urllib.request

                with urllib.request.urlopen(f"{self.url}/v1/models", timeout=1):
                    return
            except OSError:
                if time.monotonic() > until or self._process.poll() is not None:
                    raise
                time.sleep(0.05)

    async def metric(self, name: str) -> float:
        """One sample of its /metrics."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/metrics") as response:
            for line in (await response.text()).splitlines():
                if line.startswith(name) and line[len(name)] in " {":
                    return float(line.rsplit(" ", 1)[1])
        raise KeyError(name)

    async def running(self) -> int:
        """Generations the engine works on now."""
        return int(await self.metric("simulated:requests_running"))

    async def idle_within(self, seconds: float) -> float:
        """Waits until nothing runs; returns how long that took. Fails after `seconds`."""
        started = time.monotonic()
        while await self.running():
            assert time.monotonic() - started < seconds, "the engine still works"
            await asyncio.sleep(0.02)
        return time.monotonic() - started

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(10)
