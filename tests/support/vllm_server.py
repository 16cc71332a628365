"""A real vLLM with the tiny model, in a process of its own: `make test-vllm` names the folder where it is installed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import aiohttp

from scripts.install_vllm import command, model
from tests.support.ports import free_port

FOLDER: Final = os.environ.get("TEST_VLLM", "")
MODEL: Final = "tiny"
CONTEXT_TOKENS: Final = 1024
SLOTS: Final = 8
# Each other's words, so that the two together prove both.
KINDS: Final[dict[str, tuple[str, ...]]] = {
    "vllm-tcp": ("--block-size", "32"),
    # 12 blocks of 128 tokens: four answers of some hundred tokens fill it.
    "vllm-unix": ("--block-size", "128", "--num-gpu-blocks-override", "12"),
}
_OPTIONS: Final = (
    *("--served-model-name", MODEL, "--dtype", "bfloat16", "--enforce-eager", "--scheduling-policy", "priority"),
    *("--max-num-seqs", str(SLOTS), "--max-model-len", str(CONTEXT_TOKENS), "--enable-prompt-tokens-details"),
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
)
_ENVIRONMENT: Final = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "0-1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "GOMP_SPINCOUNT": "1000",
}
_START_S: Final = 900.0


class VllmServer:
    """One server. `url` is what a backend is told."""

    def __init__(self, kind: str, folder: Path, *options: str) -> None:
        self.kind, self._folder = kind, folder
        self.log = folder / f"{kind}.log"
        self._socket = folder / f"{kind}.sock"
        # One that was killed leaves its socket, and the next one would not start on it.
        self._socket.unlink(missing_ok=True)
        port = free_port()
        where = ("--uds", str(self._socket)) if kind == "vllm-unix" else ("--host", "127.0.0.1", "--port", str(port))
        self.url = f"unix:{self._socket}" if kind == "vllm-unix" else f"http://127.0.0.1:{port}"
        root = Path(FOLDER).resolve()
        words = [str(command(root)), "serve", str(model(root)), *_OPTIONS, *KINDS.get(kind, ()), *where, *options]
        self._began = time.monotonic()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                words,
                env={**os.environ, **_ENVIRONMENT, "PATH": f"{root / 'env' / 'bin'}:{os.environ.get('PATH', '')}"},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    async def ready(self) -> None:
        """Waits until it answers; says how it goes, since that takes a minute."""
        told = 0
        while True:
            with contextlib.suppress(OSError, aiohttp.ClientError):
                if (await self.get("/health"))[0] == 200:
                    return
            waited = time.monotonic() - self._began
            assert self.alive, f"vLLM ended:\n{self._tail()}"
            assert waited < _START_S, f"vLLM is not ready after {waited:.0f} s:\n{self._tail()}"
            if waited >= told + 20:
                told += 20
                print(f"  {self.kind} is starting: {waited:.0f} s", file=sys.__stderr__, flush=True)
            await asyncio.sleep(0.5)

    def _session(self) -> aiohttp.ClientSession:
        connector = aiohttp.UnixConnector(str(self._socket)) if self.url.startswith("unix:") else aiohttp.TCPConnector()
        return aiohttp.ClientSession(
            "http://localhost" if self.url.startswith("unix:") else self.url, connector=connector
        )

    async def get(self, path: str) -> tuple[int, str]:
        async with self._session() as session, session.get(path) as response:
            return response.status, await response.text()

    async def metric(self, name: str) -> float:
        """One sample of its metrics, summed over its series."""
        _, page = await self.get("/metrics")
        found = re.findall(rf"^{re.escape(name)}(?:\{{[^\n]*\}})? (\S+)$", page, re.MULTILINE)
        assert found, f"vLLM has no metric {name}"
        return sum(map(float, found))

    def kill(self) -> None:
        """As a crash would: the server and its engine core at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)

    def close(self) -> None:
        """Asks it to end, and sees to it."""
        if self.alive:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(20)
        self.kill()

    def _tail(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-3000:]


class VllmServers:
    """The servers of a run, each started when it is first wanted, and again when a test has killed it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: dict[str, VllmServer] = {}

    def begin(self, *kinds: str) -> None:
        """Starts these side by side without waiting."""
        for kind in kinds:
            if kind not in self._servers or not self._servers[kind].alive:
                self._servers[kind] = VllmServer(kind, self._folder)

    async def get(self, kind: str) -> VllmServer:
        """A server that answers."""
        self.begin(kind)
        await self._servers[kind].ready()
        return self._servers[kind]

    def close(self) -> None:
        for server in self._servers.values():
            server.close()
