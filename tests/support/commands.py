"""Commands as processes that are forked from one that has imported them: most of a command's time is its imports."""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

PROGRAM = "services.supervisor"
_COMMANDS = ("chaos", "chat", "config", "keys", "status", "top", "trace", "up")
_MODULES = ("services.supervisor.cli", *(f"services.supervisor.commands.{name}" for name in _COMMANDS))


class Forked:
    """One process. Looks like a `subprocess.Popen`."""

    def __init__(self, forks: Forks, pid: int, descriptor: int) -> None:
        self._forks = forks
        self.pid = pid
        # Names this process, and no later one of the same id.
        self._descriptor = descriptor
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self._forks.hear(0)
        return self.returncode

    def wait(self, timeout: float = 60.0) -> int:
        until = time.monotonic() + timeout
        while self.returncode is None:
            left = until - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            self._forks.hear(left)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._descriptor, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def ended(self, code: int) -> None:
        """It has."""
        self.returncode = code
        os.close(self._descriptor)


class Forks:
    """`streamway` by the fork server of its own meshes. Used by one thread at a time."""

    def __init__(self) -> None:
        self._socket, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            command = [sys.executable, "-m", "services.supervisor.forkserver", str(its.fileno()), *_MODULES]
            self._server = subprocess.Popen(command, pass_fds=(its.fileno(),))
        self._running: dict[int, Forked] = {}
        self._made: list[Forked] = []

    def start(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str], given: IO[Any], output: IO[Any],
        errors: IO[Any],
    ) -> Forked:  # fmt: skip
        """`python -m module arguments`, which reads and writes these files."""
        request = {"module": module, "arguments": list(arguments), "environment": dict(environment), "numbers": [0]}
        descriptors = [output.fileno(), errors.fileno(), given.fileno()]
        socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
        while not self._made:
            self.hear(60)
        return self._made.pop()

    def run(self, *words: str, given: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """One `streamway` command to its end."""
        with (
            tempfile.TemporaryFile("w+") as its_input,
            tempfile.TemporaryFile("w+") as out,
            tempfile.TemporaryFile("w+") as err,
        ):
            its_input.write(given)
            its_input.seek(0)
            process = self.start(PROGRAM, words, {**os.environ, **environment}, its_input, out, err)
            try:
                process.wait()
            finally:
                process.kill()
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(words, process.wait(), out.read(), err.read())

    def hear(self, within_s: float) -> None:
        """What the server tells, if it tells anything so soon."""
        if not select.select([self._socket], [], [], within_s)[0]:
            return
        message, descriptors, _, _ = socket.recv_fds(self._socket, 4096, 1)
        assert message, "the fork server has ended"
        told = json.loads(message)
        if "ended" in told:
            self._running.pop(told["ended"]).ended(told["code"])
        else:
            made = self._running[told["pid"]] = Forked(self, told["pid"], *descriptors)
            self._made.append(made)

    def close(self) -> None:
        """Ends it; what still runs dies with it."""
        self._socket.close()
        self._server.wait(30)


@functools.cache
def forks_of_this_process() -> Forks:
    """What all tests of this process share."""
    forks = Forks()
    atexit.register(forks.close)
    return forks
