"""The supervisor with real processes and a real embedded Valkey; the services are stand-ins that journal their lives."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.commands import Forks
from tests.support.valkey_server import ValkeyServer


class Up:
    """A running `streamway up`."""

    def __init__(self, forks: Forks, folder: Path, *arguments: str, **environment: str) -> None:
        self.folder = folder
        self.ready_file = folder / "ready.json"
        self.crash = folder / "crash"
        self.journal = folder / "journal"
        self.output = folder / "output"
        words = ["up", "--engine", "simulated", "--port", "0"]
        words += ["--data-dir", str(folder / "data"), "--ready-file", str(self.ready_file), *arguments]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("STREAMWAY_")}
        clean |= {"FAKE_JOURNAL": str(self.journal), "FAKE_CRASH": str(self.crash), **environment}
        with self.output.open("wb") as output, Path(os.devnull).open("rb") as nothing:
            self.process = forks.start("tests.support.fake_mesh", words, clean, nothing, output, output)

    @property
    def said(self) -> str:
        return self.output.read_text(errors="replace")

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in json.loads(self.ready_file.read_text())["processes"]}

    @property
    def lives(self) -> list[tuple[str, str]]:
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return [(line.split()[0], line.split()[1]) for line in lines]

    def until(self, what: Callable[[], Any], within_s: float = 60.0) -> None:
        limit = time.monotonic() + within_s
        while not what():
            assert time.monotonic() < limit, f"did not happen; output:\n{self.said}"
            time.sleep(0.02)

    def up(self) -> Up:
        self.until(lambda: self.ready_file.exists() or self.process.poll() is not None)
        assert self.ready_file.exists(), self.said
        return self

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(60)


@pytest.fixture
def start(forks: Forks, tmp_path: Path) -> Iterator[Callable[..., Up]]:
    started: list[Up] = []

    def make(*arguments: str, **environment: str) -> Up:
        started.append(Up(forks, tmp_path, *arguments, **environment))
        return started[-1]

    yield make
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def test_it_starts_in_order_tells_where_everything_is_and_drains_in_reverse(start: Callable[..., Up]) -> None:
    mesh = start("--workers", "2", "--edges", "2").up()
    assert list(mesh.rows) == ["valkey", "cache-0", "adapter-0", "adapter-1", "router-0", "edge-0", "edge-1"]
    assert all(psutil.pid_exists(row["pid"]) for row in mesh.rows.values())
    assert mesh.rows["edge-0"]["address"] == mesh.rows["edge-1"]["address"], "edges share one port"
    assert json.loads(mesh.ready_file.read_text())["edge"]["url"] == f"http://{mesh.rows['edge-0']['address']}"
    order = [name for what, name in mesh.lives if what == "start"]
    assert set(order[:3]) == {"single", "adapter-0", "adapter-1"}
    assert order[3] == "single"
    assert set(order[4:]) == {"edge-0", "edge-1"}
    assert "adapter-0 | adapter-0 says hello" in mesh.said
    mesh.until(lambda: "/v1" in mesh.said)

    pids = [row["pid"] for row in mesh.rows.values()]
    assert mesh.stop() == 0
    ends = [name for what, name in mesh.lives if what == "end"]
    assert set(ends[:2]) == {"edge-0", "edge-1"}
    assert ends[2] == "single"
    assert set(ends[3:5]) == {"adapter-0", "adapter-1"}
    assert ends[5] == "single"
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert not mesh.ready_file.exists()


def test_a_crashed_process_comes_back_on_its_address_and_the_ready_file_follows(start: Callable[..., Up]) -> None:
    mesh = start().up()
    for name in ("adapter-0", "valkey", "edge-0"):
        before = mesh.rows[name]
        os.kill(before["pid"], signal.SIGKILL)
        mesh.until(lambda name=name, before=before: mesh.rows[name]["pid"] != before["pid"], 30.0)  # type: ignore[misc]
        assert mesh.rows[name]["address"] == before["address"]
        assert psutil.pid_exists(mesh.rows[name]["pid"])
    assert "adapter-0 was ended by SIGKILL; starting it again\n" in mesh.said
    assert mesh.stop() == 0


def test_what_valkey_holds_outlives_its_crash(start: Callable[..., Up]) -> None:
    from redis import Redis

    mesh = start().up()
    url = mesh.rows["valkey"]["address"]
    with Redis.from_url(url) as client:
        client.set("k", "v")
        time.sleep(1.2)  # appendfsync everysec
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    before = mesh.rows["valkey"]["pid"]
    os.kill(before, signal.SIGKILL)
    mesh.until(lambda: mesh.rows["valkey"]["pid"] != before)
    with Redis.from_url(url) as client:
        assert client.get("k") == b"v"


def is_gone(pid: int) -> bool:
    """Whether a process has ended; nobody may have asked for its exit code yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_no_child_outlives_a_supervisor_that_was_killed(start: Callable[..., Up]) -> None:
    mesh = start("--workers", "2").up()
    pids = [row["pid"] for row in mesh.rows.values()]
    mesh.process.kill()
    mesh.process.wait()
    mesh.until(lambda: all(map(is_gone, pids)), 15)


def test_a_second_signal_ends_everything_at_once(start: Callable[..., Up]) -> None:
    mesh = start().up()
    stopped = psutil.Process(mesh.rows["edge-0"]["pid"])
    stopped.suspend()  # its drain will not end by itself
    mesh.process.send_signal(signal.SIGTERM)
    mesh.until(lambda: "draining" in mesh.said)
    assert mesh.process.poll() is None
    mesh.process.send_signal(signal.SIGTERM)
    assert mesh.process.wait(15) == 128 + signal.SIGTERM
    mesh.until(lambda: is_gone(stopped.pid), 15)


def test_ctrl_c_reaches_only_the_supervisor(start: Callable[..., Up]) -> None:
    mesh = start().up()
    groups = {os.getpgid(row["pid"]) for row in mesh.rows.values()}
    assert os.getpgid(mesh.process.pid) not in groups
    mesh.process.send_signal(signal.SIGINT)
    assert mesh.process.wait(60) == 0
    assert ("interrupted", "edge-0") not in mesh.lives


def test_a_signal_while_starting_ends_what_was_started(start: Callable[..., Up]) -> None:
    mesh = start(FAKE_LOAD_S="60")
    mesh.until(lambda: ("start", "adapter-0") in mesh.lives)
    children = psutil.Process(mesh.process.pid).children()
    assert children
    mesh.process.terminate()
    assert mesh.process.wait(60) == 0
    assert not any(child.is_running() for child in children)
    assert not mesh.ready_file.exists()


def test_a_deep_data_folder_works_too(start: Callable[..., Up], tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    mesh = start("--data-dir", str(deep)).up()
    path = Path(mesh.rows["valkey"]["address"].removeprefix("unix://"))
    assert path.exists()
    assert len(str(path)) < 100
    assert mesh.stop() == 0
    assert not path.parent.exists()


def test_a_valkey_of_ones_own_is_used_and_left_alone(start: Callable[..., Up], valkey_server: ValkeyServer) -> None:
    mesh = start("--valkey", valkey_server.url).up()
    assert "valkey" not in mesh.rows
    assert valkey_server.url in mesh.journal.read_text()
    assert mesh.stop() == 0
    assert psutil.pid_exists(valkey_server.pid)


def test_a_valkey_that_is_not_there_is_told_at_once(start: Callable[..., Up]) -> None:
    mesh = start("--valkey", "redis://user:secret@127.0.0.1:1/0")
    line = refused(mesh)
    assert line.startswith("cannot start: Valkey does not answer at redis://127.0.0.1:1/0")
    assert "secret" not in mesh.said


def test_a_slow_model_is_waited_for_and_told(start: Callable[..., Up]) -> None:
    mesh = start(FAKE_LOAD_S="5.6").up()
    assert "adapter-0 is still starting after 5 s: loading the model" in mesh.said
    assert mesh.lives[-1] == ("start", "edge-0")


def test_a_crash_while_starting_is_tried_again(start: Callable[..., Up], tmp_path: Path) -> None:
    (tmp_path / "crash").touch()
    mesh = start().up()
    assert "adapter-0 was ended by SIGABRT while starting; trying again" in mesh.said


def refused(mesh: Up) -> str:
    """Waits for the end and gives the last line."""
    assert mesh.process.wait(60) == 2, mesh.said
    return mesh.said.strip().splitlines()[-1]


def test_a_process_that_refuses_stops_the_start_with_its_own_words(start: Callable[..., Up]) -> None:
    mesh = start(FAKE_REFUSE="adapter")
    assert refused(mesh) == "cannot start: adapter-0: no luck today; try tomorrow"
    started = [int(row.split()[2]) for row in (mesh.journal.read_text() if mesh.journal.exists() else "").splitlines()]
    assert not any(psutil.pid_exists(pid) for pid in started)


def test_a_bad_configuration_stops_the_start_before_anything_runs(start: Callable[..., Up]) -> None:
    mesh = start(FAKE_MISSPELT="1")
    assert refused(mesh) == "cannot start: unknown setting STREAMWAY_EDGE_PRT; did you mean STREAMWAY_EDGE_PORT?"
    assert mesh.lives == []


def test_a_port_in_use_is_named_before_anything_runs(start: Callable[..., Up]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        mesh = start("--port", str(taken.getsockname()[1]))
        assert "is in use on 127.0.0.1; stop what listens there, or give another --port" in refused(mesh)
    assert mesh.lives == []


def test_two_meshes_never_share_a_data_folder(start: Callable[..., Up], tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with (tmp_path / "data" / "lock").open("w") as lock:
        lock.write("4711\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        line = refused(start())
    assert "already runs on the data folder" in line
    assert "process 4711" in line


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        (["--engine", "nonsense"], {}, "--engine 'nonsense' is unknown"),
        (["--engine", "llamacpp", "--model", "/no/such.gguf"], {}, "the model file /no/such.gguf does not exist"),
        (["--engine", "llamacpp", "--model", __file__], {}, "is no GGUF file"),
        (["--model", "/x.gguf"], {}, "--model is for --engine llamacpp"),
        (["--host", "0.0.0.0"], {}, "0.0.0.0 is reachable from outside this machine: set STREAMWAY_MESH_TOKEN"),
        (["--workers", "0"], {}, "STREAMWAY_UP_WORKERS: Input should be greater than or equal to 1"),
        ([], {"STREAMWAY_UP_WROKERS": "2"}, "did you mean STREAMWAY_UP_WORKERS?"),
    ],
    ids=str,
)
def test_what_cannot_work_is_one_line_and_code_two(
    start: Callable[..., Up], arguments: list[str], environment: dict[str, str], said: str
) -> None:
    mesh = start(*arguments, **environment)
    assert said in refused(mesh)
    assert len(mesh.said.strip().splitlines()) == 1
    assert mesh.lives == []
