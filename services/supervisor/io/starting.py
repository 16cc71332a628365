"""How a process is started: by itself, or as a fork of one that has imported what it needs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

_LAUNCHER: Final = Path(__file__).with_name("launcher.py")
_LONGEST_ANSWER_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start. `output` and `errors` are descriptors of ours that it writes to; `descriptors` stay open in it, under the
    same numbers."""

    command: Sequence[str]
    environment: Mapping[str, str]
    output: int
    errors: int
    descriptors: Sequence[int] = ()


class Running(Protocol):
    """A process that was started."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None as long as it runs."""
        ...

    def signal(self, number: int) -> None:
        """Sends it a signal; nothing when it has ended."""
        ...

    async def wait(self) -> int:
        """Its exit code; returns when it has ended."""
        ...


class Starter(Protocol):
    """Starts processes that die with this one, each in a process group of its own, so that Ctrl-C reaches only the supervisor."""

    async def start(self, launch: Launch) -> Running:
        """The caller closes his descriptors afterwards."""
        ...


class Spawner:
    """Each by itself, through `subprocess.Popen`, which uses vfork: the loop's own spawn forks, and gRPC's threads do not
    survive that."""

    async def start(self, launch: Launch) -> Running:
        """See `Starter`."""
        launcher = [sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid())]
        return _Spawned(
            subprocess.Popen(  # noqa: S603, ASYNC220 - our own command; returns after vfork
                [*launcher, *launch.command],
                env=dict(launch.environment),
                stdin=subprocess.DEVNULL,
                stdout=launch.output,
                stderr=launch.errors,
                process_group=0,
                pass_fds=tuple(launch.descriptors),
            )
        )


class _Spawned:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.poll()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    async def wait(self) -> int:
        if self._process.poll() is None:
            await _exit_of(self._process)
        return self._process.wait()


class Forks:
    """`python -m MODULE …` as forks of `services.supervisor.forkserver`; everything else, and everything once that process has
    gone or where the system has none of what it needs, by `beside`.

    `modules` are what it imports before it forks, `open` starts it. A fork has a tenth of the start of a process that imports for
    itself.
    """

    def __init__(self, beside: Starter, modules: Sequence[str]) -> None:
        self._beside = beside
        self._modules = tuple(modules)
        self._server: Running | None = None
        self._socket: socket.socket | None = None
        self._asked: deque[asyncio.Future[_Forked]] = deque()
        self._forked: dict[int, _Forked] = {}

    async def open(self, environment: Mapping[str, str]) -> None:
        """Starts it, in this environment. What is asked of it while it imports waits."""
        if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
            return
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            command = [sys.executable, "-m", "services.supervisor.forkserver", str(its.fileno()), *self._modules]
            self._server = await self._beside.start(Launch(command, environment, 1, 2, (its.fileno(),)))
        ours.setblocking(False)
        self._socket = ours
        asyncio.get_running_loop().add_reader(ours, self._heard)

    async def close(self) -> None:
        """Ends it, and with it what was forked and still runs."""
        self._gone()
        if self._server is not None:
            self._server.signal(signal.SIGTERM)
            await self._server.wait()

    async def start(self, launch: Launch) -> Running:
        """See `Starter`."""
        if self._socket is not None and tuple(launch.command[:2]) == (sys.executable, "-m"):
            request = {
                "module": launch.command[2],
                "arguments": list(launch.command[3:]),
                "environment": dict(launch.environment),
                "numbers": list(launch.descriptors),
            }
            given = [launch.output, launch.errors, *launch.descriptors]
            forked: asyncio.Future[_Forked] = asyncio.get_running_loop().create_future()
            # An environment that is longer than a message may be, or a server that is gone.
            with contextlib.suppress(OSError, _Gone):
                socket.send_fds(self._socket, [json.dumps(request).encode()], given)
                self._asked.append(forked)
                return await forked
        return await self._beside.start(launch)

    def _heard(self) -> None:
        while self._socket is not None:
            try:
                answer, descriptors, _, _ = socket.recv_fds(self._socket, _LONGEST_ANSWER_BYTES, 1)
            except BlockingIOError:
                return
            except OSError:
                answer, descriptors = b"", []
            if not answer:
                self._gone()
                return
            self._take(json.loads(answer), *descriptors)

    def _take(self, told: Mapping[str, int], *descriptors: int) -> None:
        if (pid := told.get("pid")) is not None:
            self._forked[pid] = made = _Forked(pid, *descriptors)
            waiting = self._asked.popleft()
            if waiting.done():
                # Who asked has given up.
                made.signal(signal.SIGKILL)
            else:
                waiting.set_result(made)
        else:
            self._forked.pop(told["ended"]).end(told["code"])

    def _gone(self) -> None:
        """No more forks. Those that run are ended by the kernel."""
        if self._socket is None:
            return
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self._socket = None
        for waiting in self._asked:
            if not waiting.done():
                waiting.set_exception(_Gone())
        self._asked.clear()
        for forked in self._forked.values():
            forked.end(-signal.SIGKILL)
        self._forked.clear()


class _Gone(Exception):
    """The fork server has ended."""


class _Forked:
    """`descriptor` names this process and no later one of the same id: the fork server waits for it, not we."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def poll(self) -> int | None:
        return self._code.result() if self._code.done() else None

    def signal(self, number: int) -> None:
        if not self._code.done():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    async def wait(self) -> int:
        return await asyncio.shield(self._code)

    def end(self, code: int) -> None:
        self._code.set_result(code)
        os.close(self._descriptor)


async def _exit_of(process: subprocess.Popen[bytes]) -> None:
    """Returns when the process has ended: a pidfd becomes readable then. Where the system has none, it is looked at often."""
    if not hasattr(os, "pidfd_open"):
        while process.poll() is None:  # noqa: ASYNC110 - such a system tells no loop
            await asyncio.sleep(0.05)
        return
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    watched = os.pidfd_open(process.pid)
    loop.add_reader(watched, lambda: None if ended.done() else ended.set_result(None))
    try:
        await ended
    finally:
        loop.remove_reader(watched)
        os.close(watched)
