"""How each system is started in front of the engine, as its own documentation says; ours with its defaults."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from benchmarks.accounting import cpu_seconds, memory_bytes
from tests.support.mesh import MeshProcesses
from tests.support.ports import free_port

KEY: Final = "sk-of-this-benchmark-only"
_START_S: Final = 240.0
_SLOTS: Final = 4096


@dataclass
class Running:
    """A system that serves. `url` speaks OpenAI's HTTP; `grpc` is "host:port" of a router, where there is one."""

    url: str
    root: int
    grpc: str = ""
    # Process id to name, for processes that have one of their own in the tables.
    named: dict[int, str] | None = None

    def processes(self) -> dict[int, str]:
        """Every process of it, by id, with its name."""
        tree = [psutil.Process(self.root), *psutil.Process(self.root).children(recursive=True)]
        return {each.pid: (self.named or {}).get(each.pid, "rest" if self.named else "process") for each in tree}

    def cpu(self) -> dict[str, float]:
        """Seconds of CPU so far, by name."""
        return self._by_name(cpu_seconds)

    def memory(self) -> float:
        """Bytes of all of them (proportional set size)."""
        return sum(self._by_name(memory_bytes).values())

    def _by_name(self, of: Callable[[int], float]) -> dict[str, float]:
        found: dict[str, float] = {}
        for pid, name in self.processes().items():
            found[name] = found.get(name, 0.0) + of(pid)
        return found


@dataclass(frozen=True)
class System:
    """One that is measured."""

    name: str
    # More streams at once than this are not tried: it would only show errors.
    most_streams: int
    python: Path | None = None

    @contextlib.contextmanager
    def started(self, engine: str) -> Iterator[Running]:
        """It, in front of the engine at this URL; stopped at the end."""
        with tempfile.TemporaryDirectory() as made:
            if self.name == "streamway":
                with _mesh(Path(made), engine) as running:
                    yield running
            else:
                with _gateway(self, Path(made), engine) as running:
                    yield running


@contextlib.contextmanager
def _mesh(folder: Path, engine: str) -> Iterator[Running]:
    environment = {"STREAMWAY_ADAPTER_SLOTS": str(_SLOTS), "STREAMWAY_LOG_LEVEL": "warning"}
    mesh = MeshProcesses(folder, engine=engine, environment=environment, start_s=_START_S)
    try:
        rows = mesh.ready["processes"]
        # The number is left out: two edges are one row.
        named = {row["pid"]: row["name"].rpartition("-")[0] or row["name"] for row in rows}
        yield Running(mesh.edge_url, mesh.pid, mesh.address("router-0"), named)
    finally:
        mesh.close()


@contextlib.contextmanager
def _gateway(system: System, folder: Path, engine: str) -> Iterator[Running]:
    port = free_port()
    environment = {
        **os.environ,
        "LITELLM_MASTER_KEY": KEY,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
    }
    command = _command(system, folder, engine, port)
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT) as process,
    ):
        try:
            running = Running(f"http://127.0.0.1:{port}", process.pid)
            _wait(running.url, process, folder / "log")
            yield running
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def _command(system: System, folder: Path, engine: str, port: int) -> Sequence[str]:
    where = ["--host", "127.0.0.1", "--port", str(port)]
    python = str(system.python or sys.executable)
    match system.name:
        case "vllm-router" | "sglang-router":
            module = system.name.replace("-", "_")
            return [
                *(python, "-m", f"{module}.launch_router", *where, "--worker-urls", engine, "--policy", "round_robin"),
                *("--prometheus-port", str(free_port()), "--log-level", "error"),
            ]
        case "litellm":
            config = folder / "config.yaml"
            parameters = {"model": "openai/simulated", "api_base": f"{engine}/v1", "api_key": "none"}
            config.write_text(
                json.dumps({"model_list": [{"model_name": "simulated", "litellm_params": parameters}]}),
                encoding="utf-8",
            )
            return [str(Path(python).parent / "litellm"), "--config", str(config), *where]
        case "naive gateway":
            root = Path(__file__).parents[2]
            program = f"import sys; sys.path.insert(0, {str(root)!r}); from benchmarks.peers.naive_gateway import main; main()"
            return [python, "-c", program, "--port", str(port), "--engine", engine]
        case _:
            raise ValueError(system.name)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until it answers a request."""
    body = json.dumps({"model": "simulated", "messages": [{"role": "user", "content": "ready?"}], "max_tokens": 1})
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        request = urllib.request.Request(
            f"{url}/v1/chat/completions",
            body.encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.5)
    text = log.read_text(encoding="utf-8", errors="replace")[-2000:]
    raise RuntimeError(f"it did not begin to answer within {_START_S:.0f} s; its log ends with:\n{text}")
