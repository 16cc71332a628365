"""TCP connections of other processes, by way of /proc: whose they are, and how to cut them."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

# Linux has the same number on all architectures.
_PIDFD_GETFD: Final = 438


def holder_of(client: tuple[str, int], processes: Iterable[int]) -> int | None:
    """Which of `processes` has the other end of the IPv4 connection from `client`; None when none of them does."""
    remote = _in_hex(*client)
    for pid in processes:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                if fields[2] == remote and f"socket:[{fields[9]}]" in _links(pid):
                    return pid
    return None


def cut(pid: int) -> int:
    """Ends every connection of a process, as a network that breaks; how many. Raises OSError where that is not permitted.

    The kernel hands out a copy of each of its sockets, and `shutdown` on a copy ends the connection for all who hold it. This
    needs the right to trace the process, as its parent or as root has it.
    """
    if not hasattr(os, "pidfd_open"):
        raise OSError("this system has no pidfd_open")
    ended = 0
    process = os.pidfd_open(pid)
    try:
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if str(file.readlink()).startswith("socket:"):
                    ended += _shut_down(process, int(file.name))
    finally:
        os.close(process)
    return ended


def _shut_down(process: int, number: int) -> bool:
    system = ctypes.CDLL(None, use_errno=True)
    copy = system.syscall(_PIDFD_GETFD, process, number, 0)
    if copy < 0:
        error = ctypes.get_errno()
        if error == errno.EBADF:  # closed in the meantime
            return False
        raise OSError(error, os.strerror(error))
    with socket.socket(fileno=copy) as connection:
        try:
            connection.getpeername()  # a listening socket has none, and stays
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return False
    return True


def _in_hex(host: str, port: int) -> str:
    """As /proc/net/tcp writes it: the address as the machine's own integer."""
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"


def _links(pid: int) -> set[str]:
    links = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            links.add(str(file.readlink()))
    return links
