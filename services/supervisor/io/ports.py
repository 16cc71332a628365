"""TCP ports: which are free, and the public one."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Iterator
from typing import Final

from streamway.runtime.process import StartError

# Below what the kernel gives to whoever names no port: nobody gets one by chance before the process that is to have it.
_FIRST: Final = 20_000
_COUNT: Final = 12_000
# Meshes that start at the same time have process ids that are near each other: each has so many ports of its own to begin with.
_EACH: Final = 131


def candidates() -> Iterator[int]:
    """Ports to try, in an order that depends on the process, so that two of them do not find the same one free."""
    begin = os.getpid() * _EACH
    for number in range(_COUNT):
        yield _FIRST + (begin + number) % _COUNT


def is_free(port: int) -> bool:
    """Whether a TCP port of loopback can be bound now."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free_ports(count: int) -> list[int]:
    """Different TCP ports of loopback that nothing listens on now. Raises StartError when there are not as many."""
    found = list(itertools.islice(filter(is_free, candidates()), count))
    if len(found) == count:
        return found
    raise StartError(f"of the ports from {_FIRST} to {_FIRST + _COUNT - 1} only {len(found)} are free; give a --port")


def listen(host: str, port: int) -> socket.socket:
    """A socket on which processes started later take turns to accept. Raises StartError when it cannot listen.

    It stays open while they are replaced: who connects meanwhile waits instead of being refused. The edges set the backlog
    they are configured with.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
    except OSError as problem:
        raise StartError(f"{host!r} is no address ({problem.strerror}); give another --host") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()
    except OSError as problem:
        listening.close()
        raise StartError(f"cannot listen on {host}:{port} ({problem.strerror}); give another --port") from None
    return listening


def require_free(name: str, host: str, port: int, hint: str) -> None:
    """Raises StartError when something listens on `host:port`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # Connections of the last run that are still closing do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except PermissionError:
            raise StartError(f"port {port} ({name}) needs root; {hint}") from None
        except socket.gaierror:
            raise StartError(
                f"{host!r} ({name}) is no address of this machine; use 127.0.0.1 or one of its own"
            ) from None
        except OSError as problem:
            if problem.errno == 99:
                raise StartError(
                    f"{host} ({name}) is no address of this machine; use 127.0.0.1 or one of its own"
                ) from None
            raise StartError(f"port {port} ({name}) is in use on {host}; stop what listens there, or {hint}") from None
