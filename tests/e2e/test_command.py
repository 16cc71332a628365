"""The `streamway` command against a mesh: chat, status, config, keys."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml

from streamway.config import SharedSettings
from streamway.runtime.ids import new_generation_id
from streamway.simulation.request import read
from streamway.simulation.settings import SimulationSettings
from streamway.tenancy import hash_key, load_tenancy
from tests.support.clients import frames
from tests.support.commands import Forks
from tests.support.mesh import EngineServer, MeshProcesses

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def streamway(forks: Forks) -> Command:
    """One command to its end."""
    return partial(forks.run, COLUMNS="100")


def test_chat_answers_one_question_on_standard_output_alone(
    mesh: MeshProcesses, tmp_path: Path, streamway: Command
) -> None:
    words = ("--router", mesh.address("router-0"), "--data-dir", str(tmp_path))
    asked = streamway("chat", "Hello", *words)
    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout.strip()
    piped = streamway("chat", "-", *words, given="Hello")
    assert piped.stdout.strip()


def test_chat_tells_a_refusal_in_one_line(mesh: MeshProcesses, tmp_path: Path, streamway: Command) -> None:
    words = ("--router", mesh.address("router-0"), "--data-dir", str(tmp_path))
    asked = streamway("chat", "Hello", "--model", "nope", *words)
    assert (asked.returncode, asked.stdout) == (1, "")
    assert asked.stderr.startswith("streamway: no worker serves the model 'nope'; served now: ")
    nobody = streamway("chat", "Hello", "--router", "127.0.0.1:1")
    assert nobody.returncode == 2
    assert nobody.stderr.startswith("streamway: no router answers at 127.0.0.1:1; start a mesh with `streamway up`")


class Terminal:
    """A `streamway chat` that believes to talk to a person, on a terminal that can do as much as `term` says."""

    def __init__(self, *words: str, term: str = "dumb") -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "services.supervisor", "chat", *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, "TERM": term, "COLUMNS": "200", "LINES": "50"},
            # Ctrl-C signals whoever has this terminal as its own.
            preexec_fn=lambda: _take_terminal(0),  # noqa: PLW1509 - one ioctl, one signal
        )
        os.close(slave)
        os.set_blocking(self._master, False)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    async def until(self, pattern: str, within_s: float = 20.0) -> None:
        limit = asyncio.get_running_loop().time() + within_s
        while not re.search(pattern, self.seen):
            try:
                self.seen += os.read(self._master, 65536).decode(errors="replace")
            except (BlockingIOError, OSError):
                await asyncio.sleep(0.02)
            assert asyncio.get_running_loop().time() < limit, f"no {pattern!r} in:\n{self.seen}"

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


def _take_terminal(file: int) -> None:
    import fcntl
    import termios

    fcntl.ioctl(file, termios.TIOCSCTTY, 0)
    # What a shell starts in the background ignores Ctrl-C, and hands that down.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


async def test_ctrl_c_stops_the_answer_and_not_the_conversation(
    engine_mesh: MeshProcesses, engine: EngineServer, tmp_path: Path
) -> None:
    # What other tests have left behind may still be in its grace.
    await engine.idle_within(60)
    words = ("--router", engine_mesh.address("router-0"), "--data-dir", str(tmp_path))
    terminal = Terminal(*words, "--max-tokens", "3000")
    try:
        await terminal.until("Ctrl-D ends")
        terminal.type("Tell me a very long story\n")
        await terminal.until(r"story\r\n(.|\r\n){40}")
        assert await engine.running() == 1
        terminal.type("\x03")
        await terminal.until("stopped")
        async with asyncio.timeout(20):
            while await engine.running():
                await asyncio.sleep(0.05)
        kept = json.loads((tmp_path / "chat.json").read_text())
        assert (kept["generation"], len(kept["turns"])) == ("", 2), "what was stopped is said, and not read on"
        terminal.type("/new\n")
        await terminal.until("a new conversation")
        terminal.type("\x04")
        async with asyncio.timeout(10):
            while terminal.process.poll() is None:
                await asyncio.sleep(0.05)
        assert terminal.process.returncode == 0
    finally:
        terminal.close()


async def test_resume_goes_on_in_mid_answer_after_the_chat_was_killed(
    mesh: MeshProcesses, tmp_path: Path, streamway: Command
) -> None:
    words = ("--router", mesh.address("router-0"), "--data-dir", str(tmp_path))
    question, tokens = "What becomes of rain?", 800
    whole = simulated(question, tokens)
    terminal = Terminal(question, *words, "--max-tokens", str(tokens))
    try:
        await terminal.until(r"(.|\r\n){80}")
    finally:
        terminal.close()
    kept = json.loads((tmp_path / "chat.json").read_text())
    assert whole.startswith(kept["shown"])
    assert 0 < len(kept["shown"]) < len(whole)
    resumed = await asyncio.to_thread(streamway, "chat", "And of snow?", "--resume", *words)
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert resumed.stdout.startswith(f"{whole}\n"), "from its first word, and each once"
    turns = json.loads((tmp_path / "chat.json").read_text())["turns"]
    assert [turn["content"] for turn in turns[:3]] == [question, whole, "And of snow?"], "and the conversation with it"
    again = await asyncio.to_thread(streamway, "chat", "--generation", kept["generation"], *words)
    assert again.stdout == f"{whole}\n"
    cursor = f"{kept['generation']}@{kept['epoch']}-{kept['position']}"
    rest = await asyncio.to_thread(streamway, "chat", "--generation", cursor, *words)
    assert kept["shown"] + rest.stdout == f"{whole}\n"
    assert json.loads((tmp_path / "chat.json").read_text())["turns"] == turns, "a generation takes no chat's place"
    nothing = streamway("chat", "--resume", "--data-dir", str(tmp_path / "none"), words[0], words[1])
    assert nothing.returncode == 2
    assert "begin one with `streamway chat`" in nothing.stderr


def simulated(question: str, tokens: int) -> str:
    """What the simulated engine answers."""
    body = json.dumps({"messages": [{"role": "user", "content": question}]}).encode()
    return read(body, SimulationSettings()).choices[0].text.start(tokens)


async def test_a_terminal_that_can_gets_markdown(mesh: MeshProcesses, tmp_path: Path) -> None:
    terminal = Terminal("--router", mesh.address("router-0"), "--data-dir", str(tmp_path), term="xterm-256color")
    try:
        await terminal.until("Ctrl-D ends")
        terminal.type("What is a delta?\n")
        await terminal.until(r"tokens · adapter-\d")
        assert "\x1b[?25l" in terminal.seen, "the growing part is drawn anew, with the cursor hidden"
        assert terminal.seen.rindex("\x1b[?25h") > terminal.seen.rindex("\x1b[?25l"), "and it is back"
    finally:
        terminal.close()


def test_top_shows_workers_lanes_streams_and_tokens_a_second(
    mesh: MeshProcesses, tmp_path: Path, streamway: Command
) -> None:
    data_dir = str(Path(mesh.address("valkey").removeprefix("unix://")).parent)
    words = ["chat", "Tell me of ten thousand rivers", "--max-tokens", "20000", "--router", mesh.address("router-0")]
    talking = subprocess.Popen(
        [sys.executable, "-m", "services.supervisor", *words, "--data-dir", str(tmp_path)], stdout=subprocess.PIPE
    )
    try:
        assert talking.stdout is not None
        assert talking.stdout.read(20)
        shown = streamway("top", "--once", "--data-dir", data_dir, COLUMNS="140")
    finally:
        talking.kill()
        talking.communicate()
    assert (shown.returncode, shown.stderr) == (0, "")
    parts = r"2 workers · 1 routers · (\d+) running · (\d+) read live · (\d+) tasks in lanes · (\d+) tokens/s"
    summary = re.search(parts, shown.stdout)
    assert summary is not None, shown.stdout
    assert all(int(number) >= 1 for number in summary.groups()), shown.stdout
    rows = [line.split() for line in shown.stdout.splitlines() if re.match(r" *adapter-\d ", line)]
    assert len(rows) == 2, shown.stdout
    busy = [row for row in rows if int(row[2]) >= 1]
    assert [row[1] for row in busy] == ["ready"] * len(busy)
    assert max(int(row[-2]) for row in busy) >= 1, "tokens a second"
    nothing = streamway("top", "--once", "--valkey", f"unix://{tmp_path}/none.sock")
    assert nothing.returncode == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_is_given_its_completion(shell: str, streamway: Command) -> None:
    # As a rule it looks which shell it was started from; here it is told.
    script = streamway("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert script.returncode == 0
    assert "_STREAMWAY_COMPLETE" in script.stdout
    asked = {
        "bash": {"COMP_WORDS": "streamway to", "COMP_CWORD": "1"},
        "zsh": {"_TYPER_COMPLETE_ARGS": "streamway to"},
        "fish": {"_TYPER_COMPLETE_ARGS": "streamway to", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    offered = streamway(_STREAMWAY_COMPLETE=f"complete_{shell}", **asked)
    assert "top" in offered.stdout
    assert "status" not in offered.stdout


def test_status_shows_workers_models_routers_caches_and_edges(
    mesh: MeshProcesses, tmp_path: Path, streamway: Command
) -> None:
    data_dir = str(Path(mesh.address("valkey").removeprefix("unix://")).parent)
    shown = streamway("status", "--data-dir", data_dir)
    assert (shown.returncode, shown.stderr) == (0, "")
    for part in ("adapter-0", "adapter-1", "simulated", "router-0", "cache-0", "edge-1", mesh.address("adapter-1")):
        assert part in shown.stdout
    nothing = streamway("status", "--valkey", f"unix://{tmp_path}/none.sock")
    assert nothing.returncode == 2
    assert "Valkey does not answer at unix://" in nothing.stderr


def test_config_shows_every_section_with_secrets_masked_and_tenants_without_their_keys(
    tmp_path: Path, streamway: Command
) -> None:
    file = tmp_path / "tenants.yaml"
    file.write_text(f"tenants: {{acme: {{tier: gold, keys: [{hash_key('k')}], tokens_per_minute: 5}}}}")
    given = {"MESH_TOKEN": "secret", "CACHE_TTL_S": "7", "TENANTS_FILE": str(file)}
    shown = streamway("config", "show", **{f"STREAMWAY_{name}": value for name, value in given.items()})
    assert shown.returncode == 0, shown.stderr
    assert "secret" not in shown.stdout
    settings = yaml.safe_load(shown.stdout)
    assert list(settings) == ["shared", "up", "cache", "adapter", "router", "edge", "tenancy"]
    assert settings["cache"]["ttl_s"] == 7
    assert hash_key("k") not in shown.stdout
    acme = settings["tenancy"]["tenants"]["acme"]
    assert (acme["weight"], acme["concurrency"], acme["tokens_per_minute"], acme["keys"]) == (4, 256, 5, 1)


def test_config_checks_each_service_and_names_what_is_wrong_with_tenants(tmp_path: Path, streamway: Command) -> None:
    file = tmp_path / "tenants.yaml"
    file.write_text("tenants: {acme: {tier: gold, weight: 0}}")
    given = {"ROUTER_PRT": "1", "CACHE_TTL_S": "-1", "TENANTS_FILE": str(file)}
    wrong = streamway("config", "check", **{f"STREAMWAY_{name}": value for name, value in given.items()})
    assert wrong.returncode == 2
    assert re.search(
        r"router +unknown setting STREAMWAY_ROUTER_PRT; did you mean STREAMWAY_ROUTER_PORT\?", wrong.stdout
    )
    assert re.search(r"cache +STREAMWAY_CACHE_TTL_S: Input should be greater than 0", wrong.stdout)
    assert re.search(r"edge +ok", wrong.stdout)
    assert re.search(r"tenancy +\S*tenants\.yaml: tenants\.acme\.weight: must be", wrong.stdout)


def test_a_new_key_is_let_in_by_its_row_and_its_hash_is_the_same(tmp_path: Path, streamway: Command) -> None:
    made = streamway("keys", "new", "--tenant", "acme").stdout
    key = re.search(r"sw-\S+", made)
    assert key is not None
    file = tmp_path / "keys.yaml"
    row = re.search(r"  - hash: \w+\n    tenant: \w+", made)
    assert row is not None
    file.write_text(f"keys:\n{row[0]}\n")
    assert load_tenancy(SharedSettings(api_keys_file=file)).keys == {hash_key(key[0]): "acme"}
    hashed = streamway("keys", "hash", given=f"{key[0]}\n").stdout.strip()
    assert hashed in file.read_text()
    assert streamway("keys", "new", "--tenant", "no spaces").returncode == 2


async def test_trace_shows_the_hops_of_a_generation_from_the_running_mesh(
    mesh: MeshProcesses, streamway: Command
) -> None:
    async with frames(mesh.websocket_url) as client:
        await client.open("1", "where was it", cache="off", params={"max_tokens": 5})
        seen = await client.until("finished", "1")
    generation, worker = seen[0]["generation"], seen[0]["worker"]
    known = ("--data-dir", str(mesh.data_dir))
    shown = streamway("trace", generation, *known, COLUMNS="200")
    assert (shown.returncode, shown.stderr) == (0, "")
    lines = shown.stdout.splitlines()
    assert lines[0].startswith(f"{generation}  finished  simulated  tenant anonymous  trace ")
    assert lines[1].startswith(f"channel: {lines[1].split()[1]} entries, ended; {worker} from position 2")
    order = [
        next(number for number, line in enumerate(lines) if text in line)
        for text in (*("chat simulated", "streamway.open", "process simulated"),)
    ]
    assert order == sorted(order)
    # Twice: at the edge and for the engine call inside the worker's.
    assert sum("chat simulated" in line for line in lines) == 2
    assert sum("first_token" in line for line in lines) == 3
    assert any(line.split()[2:4] == [worker, "process"] and "attempt 1" in line for line in lines)
    told = json.loads(streamway("trace", "--json", generation, *known).stdout)
    assert {hop["process"] for hop in told["hops"]} >= {"router-0", worker}
    assert len({hop["trace"] for hop in told["hops"]}) == 1
    assert "where was it" not in str(told)
    unknown = streamway("trace", new_generation_id(), *known)
    assert unknown.returncode == 1
    assert unknown.stderr.startswith("streamway: there is no generation ")
