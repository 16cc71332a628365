"""The mesh that a chaos run is let loose on: one that runs already, or one of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from redis.exceptions import RedisError

from services.supervisor.chaos import sockets
from services.supervisor.core.rounds import Victim
from services.supervisor.io.child import Child
from services.supervisor.io.configuration import complaint_of
from services.supervisor.io.data_dir import MESH_FILE
from services.supervisor.io.ready_file import read_json
from streamway.runtime.clock import SystemClock
from streamway.runtime.process import StartError
from streamway.valkey.connection import connect
from streamway.valkey.leases import list_leases

_START_S: Final = 120.0
_STOP_S: Final = 20.0
_WHOLE_S: Final = 60.0
# Slots few enough for a queue, a rate that makes streams last, and a prefill slow enough to be caught in: 50 ms.
_ENVIRONMENT: Final = {
    "STREAMWAY_ADAPTER_SLOTS": "4",
    "STREAMWAY_ADAPTER_SIMULATION__TOKENS_PER_S": "60",
    "STREAMWAY_ADAPTER_SIMULATION__PREFILL_TOKENS_PER_S": "300",
}
_SIZE: Final = ("--workers", "3", "--routers", "2", "--edges", "2")


class NotWhole(Exception):
    """A process did not come back. The message says which."""


class ChaosMesh:
    """A mesh of this machine, read from what its supervisor writes into `data_dir`."""

    def __init__(self, data_dir: Path, credentials: Mapping[str, str]) -> None:
        self._data_dir = data_dir
        self.credentials = credentials
        if not self._rows():
            raise StartError(f"no mesh runs on {data_dir}; start one with `streamway up`, or leave --running out")

    def names(self, kind: Victim) -> list[str]:
        """Its processes of one kind."""
        return [str(row["name"]) for row in self._rows() if str(row["name"]).partition("-")[0] == kind]

    def pid(self, name: str) -> int:
        """Process id now; 0 where there is no such process."""
        return next((int(row["pid"]) for row in self._rows() if row["name"] == name), 0)

    @property
    def edge_url(self) -> str:
        """Of all edges: they share a port."""
        return str(self._content()["edge"]["url"]).rstrip("/")

    def router(self, number: int) -> tuple[str, str]:
        """Name and address; numbers beyond the last begin anew."""
        routers = [row for row in self._rows() if str(row["name"]).startswith("router-")]
        row = routers[number % len(routers)]
        return str(row["name"]), str(row["address"])

    def edge_behind(self, connection: Any) -> str:
        """Name of the edge at the other end of the client's socket `connection`, its own address."""
        edges = {self.pid(name): name for name in self.names("edge")}
        if not isinstance(connection, tuple) or len(connection) != 2:
            return ""
        return edges.get(sockets.holder_of(connection, edges) or 0, "")

    @property
    def store(self) -> Path | None:
        """Folder of the embedded Valkey's data; None where the mesh uses another one."""
        return self._data_dir / "valkey" if self.names("valkey") else None

    async def models(self) -> list[tuple[str, str]]:
        """Name of a model and kind of its engine, for each that a worker serves."""
        return [
            (name, lease.get("engine", ""))
            for lease in (await self._leases("worker")).values()
            for name in _model_names(lease)
        ]

    async def whole(self, killed: Mapping[str, int]) -> None:
        """Waits until every process runs, those in `killed` under another pid, workers and routers hold their leases, and routers
        write into the store again.

        Raises NotWhole when that takes more than a minute.
        """
        until = time.monotonic() + _WHOLE_S
        while missing := await self._missing(killed):
            if time.monotonic() > until:
                raise NotWhole(f"after {_WHOLE_S:g} s {', '.join(missing)} did not come back")
            await asyncio.sleep(0.1)

    async def _missing(self, killed: Mapping[str, int]) -> list[str]:
        rows = {str(row["name"]): int(row["pid"]) for row in self._rows()}
        missing = [name for name, pid in rows.items() if killed.get(name) == pid or not _runs(pid)]
        if missing:
            return missing
        try:
            leases = {**await self._leases("worker"), **await self._leases("router")}
        except (StartError, RedisError, OSError):
            return ["valkey"]
        leases = {name: lease for name, lease in leases.items() if lease.get("store_away") != "1"}
        return [name for name in rows if name.startswith(("adapter-", "router-")) and name not in leases]

    async def _leases(self, kind: str) -> dict[str, dict[str, str]]:
        client = await connect(str(self._content()["valkey"]), start_timeout_s=1.0)
        try:
            return await list_leases(client, SystemClock(), kind)
        finally:
            await client.aclose()

    def _rows(self) -> list[dict[str, Any]]:
        return list(self._content().get("processes", []))

    def _content(self) -> dict[str, Any]:
        return read_json(self._data_dir / MESH_FILE)


@asynccontextmanager
async def own_mesh() -> AsyncIterator[ChaosMesh]:
    """Three workers with the simulated engine, two routers, two edges, in a temporary folder. Raises StartError."""
    with tempfile.TemporaryDirectory(prefix="streamway-chaos-") as folder:
        data_dir = Path(folder) / "data"
        # Nothing of the caller's own mesh counts here: neither its store nor its keys.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("STREAMWAY_")}
        nothing = Path(folder) / "streamway.yaml"
        nothing.write_text("{}\n", encoding="utf-8")
        environment = {**inherited, **_ENVIRONMENT, "STREAMWAY_CONFIG": str(nothing)}
        supervisor = Child(_command(data_dir), environment, lambda _: None)
        await supervisor.start()
        try:
            yield await _started(supervisor, data_dir)
        finally:
            await supervisor.stop(_STOP_S)
            supervisor.close()


def _command(data_dir: Path) -> Sequence[str]:
    up = ("-m", "services.supervisor", "up", "--engine", "simulated", "--port", "0")
    return [sys.executable, *up, "--data-dir", str(data_dir), *_SIZE]


async def _started(supervisor: Child, data_dir: Path) -> ChaosMesh:
    until = time.monotonic() + _START_S
    while not read_json(data_dir / MESH_FILE):
        if not supervisor.running or time.monotonic() > until:
            complaint = complaint_of(tuple(supervisor.last_lines)) or "it does not start"
            raise StartError(f"a mesh for this run: {complaint}")
        await asyncio.sleep(0.05)
    mesh = ChaosMesh(data_dir, {})
    await mesh.whole({})
    return mesh


def _runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _model_names(lease: Mapping[str, str]) -> list[str]:
    return [str(model["name"]) for model in json.loads(lease.get("models") or "[]")]
