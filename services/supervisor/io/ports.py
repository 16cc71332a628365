"""TCP ports: which are free."""

from __future__ import annotations

import socket

from streamway.runtime.process import StartError


def free_ports(count: int) -> list[int]:
    """Different TCP ports of loopback that nothing listens on now."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


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
