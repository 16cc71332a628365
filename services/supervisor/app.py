"""The supervisor: puts the mesh together from processes and keeps it so."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from pydantic import SecretStr
from rich.console import Console

from services.supervisor.core.backoff import Backoff
from services.supervisor.core.engine import threads_each
from services.supervisor.core.failures import allowed
from services.supervisor.core.nightly import time_of
from services.supervisor.core.plan import DRAIN_ORDER, OPERATIONS_OFFSET, PRELOADED, STAGES, Engine, Kind, Process, plan
from services.supervisor.io import configuration, embedded_valkey
from services.supervisor.io.control import Control
from services.supervisor.io.data_dir import DataDir
from services.supervisor.io.engines import Engines
from services.supervisor.io.health import HttpProbe, ValkeyProbe
from services.supervisor.io.journal import Terminal
from services.supervisor.io.keeper import Keeper, Spec
from services.supervisor.io.nightly import Nightly
from services.supervisor.io.ports import free_ports, listen, require_free
from services.supervisor.io.ready_file import write_json
from services.supervisor.io.socket_paths import socket_path
from services.supervisor.io.starting import Forks, Spawner
from services.supervisor.settings import UpSettings
from streamway.config import SharedSettings
from streamway.runtime.address import host_port
from streamway.runtime.cpu import cpu_quota
from streamway.runtime.process import StartError
from streamway.tenancy import load_tenancy
from streamway.valkey.connection import connect

_VALKEY: Final = "valkey"
_START_TIMEOUT_S: Final = 60.0
_VALKEY_ANSWER_S: Final = 5.0
_ENGINE_INTERVAL_S: Final = 1.0
# Of the file in which edges tell their connections, for each; see their setting `counts_fd`.
_COUNT_BYTES: Final = 8
# After a failed start nobody waits for running work.
_ABANDON_GRACE_S: Final = 5.0


class Supervisor:
    """Implements `runtime.process.Service` over child processes: health-gated start, restarts, ordered drain."""

    def __init__(
        self, settings: UpSettings, shared: SharedSettings, engine: Engine, data_dir: DataDir, console: Console
    ) -> None:
        self._settings = settings
        self._shared = shared
        self._data_dir = data_dir
        self._engine = engine
        self._processes = plan(
            engine=engine,
            workers=settings.workers,
            edges=settings.edges,
            routers=settings.routers,
            host=settings.host,
            port=settings.port,
            free_ports=free_ports,
        )
        self._embedded = settings.valkey is None and "valkey_url" not in shared.model_fields_set
        self._socket: Path | None = socket_path(data_dir.path, "valkey.sock") if self._embedded else None
        names = ([_VALKEY] if self._embedded else []) + [process.name for process in self._processes]
        self._terminal = Terminal(console, names)
        self._keepers: dict[str, Keeper] = {}
        self._starter = Forks(Spawner(), PRELOADED)
        self._engines: Engines | None = None
        self._nightly: Nightly | None = None
        # All edges accept from it.
        self._public: socket.socket | None = None
        self._control: Control | None = None
        # In it they tell each other how many connections they have.
        self._counts: IO[bytes] | None = None

    async def start(self) -> None:
        """Checks every configuration, then starts stage by stage. Raises StartError before anything runs where it can."""
        began = time.monotonic()
        environment = self._environment()
        if self._settings.fork_server:
            await self._starter.open(environment)
        self._terminal.note("checking the configuration")
        configs = await self._configurations(environment)
        self._check_ports(configs)
        if self._socket is not None:
            valkey = self._valkey(self._socket, environment)
            self._keepers[_VALKEY] = valkey
            await valkey.start()
        else:  # one line now instead of one from each process later
            await (await connect(self._valkey_url, start_timeout_s=_VALKEY_ANSWER_S)).aclose()
        edge = configs[self._of("edge")[0].name]
        self._public = listen(edge["host"], int(edge["port"]))
        self._counts = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the socket
        self._counts.truncate(_COUNT_BYTES * len(self._of("edge")))
        await self._open_control()
        for process in self._processes:
            self._keepers[process.name] = self._keeper(process, configs, environment)
        for stage in STAGES:
            try:
                async with asyncio.TaskGroup() as group:
                    for process in self._processes:
                        if process.kind in stage:
                            group.create_task(self._keepers[process.name].start())
            except* Exception as problems:  # noqa: BLE001 - raised again, as the one problem it is
                raise _first(problems) from None
        self._engines = Engines(
            {process.index: _address(configs[process.name]) for process in self._of("adapter")}, self._shared
        )
        await self._engines.refresh()
        try:
            self._publish()
        except OSError as problem:
            raise StartError(f"cannot write {problem.filename}: {problem.strerror}; check --ready-file") from None
        self._terminal.close()
        if (at := time_of(self._settings.prune_at)) is not None:
            cache = configs[self._of("cache")[0].name]
            self._nightly = Nightly(at, self._valkey_url, cache, self._terminal.note)
        self._tell(configs, time.monotonic() - began)

    async def failed(self) -> None:
        """Restarts what ends, until cancelled by the drain."""
        async with asyncio.TaskGroup() as group:
            for keeper in self._keepers.values():
                group.create_task(keeper.keep(self._republish))
            group.create_task(self._watch_engines())
            if self._nightly is not None:
                group.create_task(self._nightly.run())

    async def drain(self) -> None:
        """Ends the processes in the order of the token path, so that each finds what it needs while it drains."""
        self._terminal.note("draining; a second signal ends everything at once")
        await self._close_control()
        await self._stop(self._settings.stop_grace_s)

    async def close(self) -> None:
        """Ends what still runs."""
        self._terminal.close()
        await self._close_control()
        await self._stop(_ABANDON_GRACE_S)
        await self._starter.close()
        if self._engines is not None:
            await self._engines.close()
        if self._settings.ready_file is not None:
            self._settings.ready_file.unlink(missing_ok=True)
        if self._socket is not None and self._socket.parent != self._data_dir.path:
            self._socket.unlink(missing_ok=True)
            self._socket.parent.rmdir()
        self._data_dir.release()

    def _environment(self) -> dict[str, str]:
        """What the children inherit: everything, plus what they must agree on."""
        environment = {**os.environ, "STREAMWAY_VALKEY_URL": self._valkey_url, "PYTHONUNBUFFERED": "1"}
        if self._shared.mesh_token is not None:
            environment["STREAMWAY_MESH_TOKEN"] = self._shared.mesh_token.get_secret_value()
        if "log_format" not in self._shared.model_fields_set:
            environment["STREAMWAY_LOG_FORMAT"] = "console"
        return environment

    @property
    def _valkey_url(self) -> str:
        if self._socket is not None:
            return f"unix://{self._socket}"
        given: SecretStr = self._settings.valkey or self._shared.valkey_url
        return given.get_secret_value()

    async def _configurations(self, environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """The effective settings of each process. Those of a kind differ only in their own arguments, so one asks for all."""
        first = {process.kind: process for process in reversed(self._processes)}
        try:
            async with asyncio.TaskGroup() as group:
                asked = {
                    kind: group.create_task(
                        configuration.effective(process.module, process.arguments, environment, self._starter),
                        name=kind,
                    )
                    for kind, process in first.items()
                }
        except* Exception as problems:  # noqa: BLE001 - raised again, as the one problem it is
            raise _first(problems) from None
        return {
            process.name: {**asked[process.kind].result()[process.kind], **_ports_of(process)}
            for process in self._processes
        }

    def _check_ports(self, configs: Mapping[str, Mapping[str, Any]]) -> None:
        seen: set[tuple[str, int]] = set()
        for process in self._processes:
            config = configs[process.name]
            for setting, host, number in (
                ("port", config["host"], int(config["port"])),
                ("operations_port", config["operations_host"], _operations_port(config)),
            ):
                if number == 0 or (host, number) in seen:
                    continue
                seen.add((host, number))
                mine = process.kind == "edge" and setting == "port"
                variable = f"STREAMWAY_{process.kind.upper()}_{setting.upper()}"
                hint = (
                    "give another --port"
                    if mine
                    else "use --port 0 to take free ports for all"
                    if process.kind in ("adapter", "edge")
                    else f"set {variable}, or use --port 0 to take free ports for all"
                )
                require_free(f"{process.name} {setting}", host, number, hint)

    def _valkey(self, path: Path, environment: Mapping[str, str]) -> Keeper:
        command = embedded_valkey.command(self._data_dir.path, path)
        probe = ValkeyProbe(self._valkey_url)
        # Meant for servers with replicas and large snapshots. This one has neither.
        hush = ("Memory overcommit must be enabled",)
        spec = Spec(_VALKEY, command, environment, self._valkey_url, probe, _START_TIMEOUT_S, hush)
        return Keeper(spec, self._terminal, Backoff(), self._starter)

    def _keeper(
        self, process: Process, configs: Mapping[str, Mapping[str, Any]], environment: Mapping[str, str]
    ) -> Keeper:
        config = configs[process.name]
        operations = host_port(_reachable(config["operations_host"]), _operations_port(config))
        probe = HttpProbe(_reachable(config["operations_host"]), _operations_port(config))
        limit_s = self._settings.start_timeout_s if process.kind == "adapter" else _START_TIMEOUT_S
        command = [sys.executable, "-m", process.module, *process.arguments]
        if process.kind == "adapter" and self._engine.is_llamacpp and not (config["threads"] or config["cores"]):
            command += ["--threads", str(threads_each(cpu_quota(), self._settings.workers))]
        descriptors: tuple[int, ...] = ()
        if process.kind == "edge" and self._public is not None and self._counts is not None:
            descriptors = (self._public.fileno(), self._counts.fileno())
            command += ["--listen-fd", str(descriptors[0]), "--counts-fd", str(descriptors[1])]
            command += ["--counts-slot", str(process.index)]
            if self._control is not None:
                command += ["--failures-socket", str(self._control.path)]
        spec = Spec(
            process.name,
            command,
            environment,
            _address(config),
            probe,
            limit_s,
            descriptors=descriptors,
            operations=operations,
        )
        return Keeper(spec, self._terminal, Backoff(), self._starter)

    async def _open_control(self) -> None:
        """For the console's page of failures, where that is allowed."""
        has_credentials = load_tenancy(self._shared).has_credentials
        if not allowed(self._settings.try_failure, self._settings.host, has_credentials=has_credentials):
            return
        path = socket_path(self._data_dir.path, "control.sock")
        control = Control(path, lambda: self._keepers_of("adapter"), self._terminal.note)
        try:
            await control.start()
        except OSError as problem:
            raise StartError(f"cannot listen on {path}: {problem.strerror}; or start with --try-failure off") from None
        self._control = control

    async def _close_control(self) -> None:
        """What is paused could not drain."""
        if self._control is not None:
            await self._control.close()
            if self._control.path.parent != self._data_dir.path:
                self._control.path.parent.rmdir()
            self._control = None

    def _keepers_of(self, kind: Kind) -> dict[str, Keeper]:
        return {name: keeper for process in self._of(kind) if (keeper := self._keepers.get(name := process.name))}

    def _of(self, kind: Kind) -> list[Process]:
        return [process for process in self._processes if process.kind == kind]

    async def _watch_engines(self) -> None:
        """An adapter may start its engine anew without ending itself; the ready file must then name the new one."""
        while self._engines is not None:
            await asyncio.sleep(_ENGINE_INTERVAL_S)
            if await self._engines.refresh():
                self._republish()

    def _republish(self) -> None:
        """A full disk must not end a mesh that runs."""
        try:
            self._publish()
        except OSError as problem:
            self._terminal.note(f"cannot write {problem.filename}: {problem.strerror}")

    def _publish(self) -> None:
        """Writes where everything is: for whoever waits for the ready file, and for `streamway status` and `chat`."""
        rows = [
            {
                "name": keeper.name,
                "pid": keeper.pid,
                "address": keeper.spec.address,
                **({"operations": keeper.spec.operations} if keeper.spec.operations else {}),
            }
            for keeper in self._keepers.values()
        ]
        engines = self._engines.known if self._engines is not None else {}
        rows += [{"name": f"engine-{n}", "pid": e.pid, "address": e.address} for n, e in sorted(engines.items())]
        edge = self._keepers[self._of("edge")[0].name]
        content = {"edge": {"url": f"http://{edge.spec.address}"}, "processes": rows}
        write_json(self._data_dir.mesh_file, {**content, "valkey": self._valkey_url, "supervisor": os.getpid()})
        if self._settings.ready_file is not None:
            write_json(self._settings.ready_file, content)

    def _tell(self, configs: Mapping[str, Mapping[str, Any]], took_s: float) -> None:
        url = f"http://{_address(configs[self._of('edge')[0].name])}"
        needs_key = " (needs an API key)" if load_tenancy(self._shared).has_credentials else ""
        self._terminal.summary(
            [
                ("mesh", f"{len(self._keepers)} processes, up in {took_s:.1f} s; engine: {self._engine.shown}"),
                ("console", f"{url}/{needs_key}"),
                ("OpenAI", f"{url}/v1"),
                ("gRPC", _address(configs[self._of("router")[0].name])),
                ("stop", "Ctrl-C"),
            ]
        )

    async def _stop(self, grace_s: float) -> None:
        if self._public is not None:
            # The edges have it too, and answer who waits there before they close theirs.
            self._public.close()
            self._public = None
        if self._counts is not None:
            self._counts.close()
            self._counts = None
        for kind in DRAIN_ORDER:
            async with asyncio.TaskGroup() as group:
                for process in self._of(kind):
                    if (keeper := self._keepers.get(process.name)) is not None:
                        group.create_task(keeper.stop(grace_s))
        if (valkey := self._keepers.get(_VALKEY)) is not None:
            await valkey.stop(grace_s)
        self._keepers.clear()


def _ports_of(process: Process) -> dict[str, int]:
    """The ports its own arguments name, in the form of settings."""
    words: Sequence[str] = process.arguments
    return {
        name.removeprefix("--").replace("-", "_"): int(value)
        for name, value in zip(words[::2], words[1::2], strict=True)
        if name in ("--port", "--operations-port")
    }


def _operations_port(config: Mapping[str, Any]) -> int:
    """Unset means the gRPC port + 1000; the edges are always told theirs."""
    given = config["operations_port"]
    return int(config["port"]) + OPERATIONS_OFFSET if given is None else int(given)


def _reachable(host: str) -> str:
    """The address under which this machine reaches a listener on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _address(config: Mapping[str, Any]) -> str:
    host = _reachable(str(config["host"]))
    return f"[{host}]:{config['port']}" if ":" in host else f"{host}:{config['port']}"


def _first(problems: BaseExceptionGroup[Any]) -> BaseException:
    """The first failure of a group; the others are consequences of it."""
    first: BaseException = problems.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
