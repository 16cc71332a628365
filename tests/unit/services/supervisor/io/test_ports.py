"""Ports of meshes that begin at the same time."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from services.supervisor.io import ports
from services.supervisor.io.ports import candidates, free_ports
from streamway.runtime.process import StartError


def test_no_port_is_one_that_the_kernel_gives_to_whoever_names_none() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(candidates()) < max(lowest, 32_768)


def test_what_something_listens_on_is_passed_over() -> None:
    before = free_ports(2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", before[0]))
        taken.listen()
        after = free_ports(2)
    assert len({*before, *after}) == 3
    assert before[0] not in after


def test_processes_that_start_one_after_the_other_find_other_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    found: set[int] = set()
    for process in range(4_000, 4_080):
        monkeypatch.setattr(ports.os, "getpid", lambda process=process: process)
        found.update(number for number, _ in zip(candidates(), range(100), strict=False))
    assert len(found) == 80 * 100


def test_too_few_stop_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: port == 20_001)
    assert free_ports(1) == [20_001]
    with pytest.raises(StartError, match="only 1 are free"):
        free_ports(2)
