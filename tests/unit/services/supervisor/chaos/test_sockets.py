"""Connections of other processes: whose they are, and that a cut ends all of them and nothing else."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from services.supervisor.chaos.sockets import cut, holder_of

# Serves one connection, then waits for it to end, and tells whether it can still be connected to.
SERVER = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
print("accepted", flush=True)
print("ended" if connection.recv(1) == b"" else "read", flush=True)
listener.accept()
print("again", flush=True)
"""


@pytest.fixture
def server() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait(30)
    assert process.stdout is not None
    process.stdout.close()


def said(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    return server.stdout.readline().strip()


def test_the_process_at_the_other_end_is_found_and_cut_off_but_goes_on_to_listen(
    server: subprocess.Popen[str],
) -> None:
    port = int(said(server))
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        assert said(server) == "accepted"
        assert holder_of(client.getsockname(), [os.getpid(), server.pid]) == server.pid
        assert holder_of(client.getsockname(), [os.getpid()]) is None
        try:
            number = cut(server.pid)
        except PermissionError:
            pytest.skip("no process may be traced here")
        assert number == 1
        assert said(server) == "ended"
        assert client.recv(1) == b""
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        assert said(server) == "again"


def test_a_process_that_is_gone_has_no_connections(server: subprocess.Popen[str]) -> None:
    server.kill()
    server.wait(30)
    assert holder_of(("127.0.0.1", 1), [server.pid]) is None
    with pytest.raises(ProcessLookupError):
        cut(server.pid)
