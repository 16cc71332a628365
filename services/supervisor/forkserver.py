"""The process that service processes are forked from: `python -m services.supervisor.forkserver SOCKET MODULE…`.

It imports once what each service would import for itself, and forks a process for each request of the supervisor:

    supervisor ── {"module", "arguments", "environment", "numbers"}, output and further descriptors ──► here ── fork ──► service
               ◄── {"pid": 4711}, its pidfd ──────────────────────────────────────────────────────────┘
               ◄── {"ended": 4711, "code": −9}

It has one thread, and refuses to fork when an import has started another: locks that one holds stay locked in the fork. It and
its forks die with the supervisor, whatever ends that.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from setproctitle import setproctitle

from streamway.runtime.processes import die_with_parent

_LONGEST_REQUEST_BYTES: Final = 1 << 20
_MOST_DESCRIPTORS: Final = 16
# Above every number that a service is told.
_APART: Final = 256


class ForkServer:
    """Serves one supervisor over a socket that keeps messages apart (SOCK_SEQPACKET)."""

    def __init__(self, supervisor: socket.socket) -> None:
        self._supervisor = supervisor
        self._pid = os.getpid()
        # Not epoll: that would be one with the forks'.
        self._poll = select.poll()
        self._poll.register(supervisor, select.POLLIN)
        # Process ids by the descriptors that tell their ends.
        self._alive: dict[int, int] = {}

    def serve(self) -> dict[str, Any] | None:
        """Returns in each fork, with what it was asked to be; here when the supervisor has hung up: None."""
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor in self._alive:
                    self._reap(descriptor)
                    continue
                message, descriptors = self._heard()
                if not message:
                    return None
                request: dict[str, Any] = json.loads(message)
                if self._fork(request, descriptors):
                    return request

    def _heard(self) -> tuple[bytes, list[int]]:
        """The next request and its descriptors; empty when the supervisor has hung up."""
        try:
            message, descriptors, _, _ = socket.recv_fds(self._supervisor, _LONGEST_REQUEST_BYTES, _MOST_DESCRIPTORS)
        except ConnectionError:
            return b"", []
        return message, descriptors

    def _fork(self, request: dict[str, Any], descriptors: Sequence[int]) -> bool:
        """True in the fork."""
        pid = os.fork()
        if pid == 0:
            # Its number is about to be another's.
            self._supervisor.detach()
            _become(request, descriptors, self._pid)
            return True
        for descriptor in descriptors:
            os.close(descriptor)
        process = os.pidfd_open(pid)
        self._alive[process] = pid
        self._poll.register(process, select.POLLIN)
        self._tell({"pid": pid}, process)
        return False

    def _reap(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        os.close(descriptor)
        pid = self._alive.pop(descriptor)
        _, status = os.waitpid(pid, 0)
        self._tell({"ended": pid, "code": os.waitstatus_to_exitcode(status)})

    def _tell(self, what: dict[str, int], *descriptors: int) -> None:
        socket.send_fds(self._supervisor, [json.dumps(what).encode()], descriptors)


def _become(request: dict[str, Any], descriptors: Sequence[int], parent: int) -> None:
    """Makes the fork what a process of its own would be: group, descriptors, environment, arguments, name."""
    die_with_parent(parent)
    os.setpgid(0, 0)
    # Out, errors, and the further ones under the numbers that the supervisor has them.
    numbers = (1, 2, *request["numbers"])
    moved = [os.dup2(descriptor, _APART + place) for place, descriptor in enumerate(descriptors)]
    os.closerange(3, _APART)
    for source, number in zip(moved, numbers, strict=True):
        os.dup2(source, number)
    os.closerange(_APART, _APART + len(moved))
    module, arguments = request["module"], request["arguments"]
    sys.argv = [module, *arguments]
    # First, since it looks for its place beside the environment that the process began with.
    setproctitle(" ".join([Path(sys.executable).name, "-m", module, *arguments]))
    os.environ.clear()
    os.environ.update(request["environment"])


def main() -> int:
    """Imports, serves, and in each fork is the service."""
    descriptor, modules = int(sys.argv[1]), sys.argv[2:]
    # Next to nothing of what imports make is garbage: without the search for it they take a fifth less.
    gc.disable()
    for module in modules:
        importlib.import_module(module)
    if threading.active_count() > 1 or len(list(Path("/proc/self/task").iterdir())) > 1:
        print("an import has started a thread: services are started one by one", file=sys.stderr)
        return 1
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # What all forks share stays shared: the search for cycles would write to it.
    gc.collect()
    gc.freeze()
    gc.enable()
    request = ForkServer(socket.socket(fileno=descriptor)).serve()
    if request is not None:
        try:
            runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
        except SystemExit as end:
            _leave(end.code)
            raise
        _leave(0)
    return 0


def _leave(code: str | int | None) -> None:
    """Ends a fork as the interpreter would, but leaves what was imported as it is: to take that apart is to copy every page that
    forks share, a tenth of a second for each. Returns where a thread has to be waited for, or a text is the code."""
    if isinstance(code, str) or threading.active_count() > 1:
        return
    atexit._run_exitfuncs()  # noqa: SLF001 - as multiprocessing does
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    sys.exit(main())
