"""The same turns at a mesh of processes, each worker in front of an engine of its own over HTTP, with one configuration."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from benchmarks.accounting import cpu_seconds
from benchmarks.simulate.live import LiveClient
from benchmarks.simulate.results import quantile
from benchmarks.simulate.scenario import Scenario
from benchmarks.tune.model import Figures
from benchmarks.tune.parameters import ENGINE_KEEPS_S
from tests.support.mesh import MeshProcesses
from tests.support.ports import free_port

_START_S: Final = 120.0


def run(scenario: Scenario, configuration_file: Path | None) -> Figures:
    """Starts all of it, asks the scenario's turns over one gRPC call, and takes it down. None: the mesh's own defaults.

    CPU is that of every process of the mesh but the engines'; what was kept is not looked at.
    """
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as stack:
        folder = Path(made)
        urls = [stack.enter_context(_engine(scenario)) for _ in range(scenario.workers)]
        settings = {"STREAMWAY_ADAPTER_SLOTS": str(scenario.engine.slots), "STREAMWAY_LOG_LEVEL": "warning"}
        if configuration_file is not None:
            settings["STREAMWAY_CONFIG"] = str(configuration_file.absolute())
        mesh = MeshProcesses(folder, engine=urls[0], environment=settings, start_s=_START_S)
        stack.callback(mesh.close)
        valkey = json.loads((mesh.data_dir / "mesh.json").read_text(encoding="utf-8"))["valkey"]
        workers = [
            stack.enter_context(_worker(f"adapter-{number}", url, {**settings, "STREAMWAY_VALKEY_URL": valkey}))
            for number, url in enumerate(urls[1:], 1)
        ]
        pids = [row["pid"] for row in mesh.ready["processes"]] + [worker.pid for worker in workers]
        # The router looks for workers twice a second.
        time.sleep(3.0)
        before, cpu = _counted(urls), sum(map(cpu_seconds, pids))
        outcomes = asyncio.run(LiveClient(scenario).run(mesh.address("router-0")))
        after, cpu = _counted(urls), sum(map(cpu_seconds, pids)) - cpu
    served = [one for one in outcomes if one.first_at >= 0]
    gaps = [(later - earlier) * 1000 for one in served for earlier, later in pairwise(one.token_times)]
    calls = after["requests_total"] - before["requests_total"]
    return Figures(
        quantile((one.wait_s * 1000 for one in served), 0.99),
        1 - (after["connections_used_total"] - before["connections_used_total"]) / max(1, calls),
        cpu / max(1, sum(one.made_tokens for one in served)) * 1e6,
        1 - len(served) / max(1, len(outcomes)),
        quantile(gaps, 0.99),
        0,
    )


@contextlib.contextmanager
def _engine(scenario: Scenario) -> Iterator[str]:
    options = [
        part
        for name, value in scenario.engine.model_dump(exclude_defaults=True).items()
        for part in (f"--{name.replace('_', '-')}", str(value))
    ]
    command = [sys.executable, "-m", "benchmarks.simulated_engine", "--port", "0", "--keep-s", str(ENGINE_KEEPS_S)]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().decode().strip()
            if not url:
                raise SystemExit("the simulated engine did not start")
            yield url
        finally:
            process.terminate()


@contextlib.contextmanager
def _worker(name: str, url: str, settings: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A worker beside the one that `streamway up` started, which gives all of its own the same engine."""
    operations = free_port()
    # fmt: off
    command = [
        sys.executable, "-m", "services.inference_adapter", "--worker", name, "--backend", "openai_http", "--engine-url", url,
        "--port", "0", "--operations-port", str(operations),
    ]
    # fmt: on
    with subprocess.Popen(command, env={**os.environ, **settings}, stdout=subprocess.DEVNULL) as process:
        try:
            _wait(f"http://127.0.0.1:{operations}/readyz", process)
            yield process
        finally:
            process.terminate()


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.2)
    raise SystemExit("a worker did not come up; its log is above")


def _counted(urls: Sequence[str]) -> dict[str, int]:
    """The engines' own counts, of all of them."""
    found: dict[str, int] = {}
    for url in urls:
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
            for line in answer.read().decode().splitlines():
                name, value = line.removeprefix("simulated:").split()
                if name.endswith("_total"):
                    found[name] = found.get(name, 0) + int(value)
    return found
