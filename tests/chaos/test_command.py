"""`streamway chaos` itself, as somebody types it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from services.supervisor.core.rounds import SHORT
from streamway.simulation.request import read
from streamway.simulation.settings import SimulationSettings
from tests.support.commands import Forks
from tests.support.mesh import MeshProcesses

pytestmark = pytest.mark.timeout(240)


async def command(*arguments: str) -> tuple[int, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STREAMWAY_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.supervisor", "chaos", *arguments,
        env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, said.decode()


async def test_the_short_run_loses_and_repeats_nothing(tmp_path: Path) -> None:
    file = tmp_path / "chaos.json"
    code, said = await command("--short", "--json", str(file))
    assert code == 0, said
    rows = json.loads(file.read_text())
    assert rows[0]["deed"] == "nothing"
    assert [(row["victim"], row["phase"]) for row in rows[1:]] == [(each.victim, each.phase) for each in SHORT]
    hit = {row["target"] for row in rows if row["deed"] == "kill" and row["hit"]}
    assert {name.partition("-")[0] for name in hit} >= {"edge", "router", "adapter", "valkey"}, said
    assert all(row["live"] for row in rows[1:]), said
    assert "nothing lost, nothing repeated" in said


async def test_a_mesh_that_runs_already_is_tormented_where_it_is(chaos_mesh: MeshProcesses, tmp_path: Path) -> None:
    file, before = tmp_path / "chaos.json", chaos_mesh.pid_of("cache-0")
    data_dir = str(chaos_mesh.log_path.parent / "data")
    code, said = await command("--running", "--data-dir", data_dir, "--short", "--only", "cache", "--json", str(file))
    assert code == 0, said
    assert [(row["deed"], row["target"]) for row in json.loads(file.read_text())][1:] == [("kill", "cache-0")]
    assert chaos_mesh.pid_of("cache-0") != before


async def test_a_chat_reads_on_when_its_router_is_killed(chaos_mesh: MeshProcesses, tmp_path: Path) -> None:
    question, tokens = "Where does a river begin?", 400
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.supervisor", "chat", question, "--max-tokens", str(tokens),
        "--router", chaos_mesh.address("router-0"), "--data-dir", str(tmp_path),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        seen = await process.stdout.readexactly(60)
        old = chaos_mesh.kill("router-0")
        rest, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (process.returncode, said) == (0, b"")
    body = json.dumps({"messages": [{"role": "user", "content": question}]}).encode()
    assert (seen + rest).decode() == f"{read(body, SimulationSettings()).choices[0].text.start(tokens)}\n"
    await chaos_mesh.restarted("router-0", old)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--short", "--full"), "exclude each other"),
        (("--only", "engine"), "use edge, router, adapter, cache, valkey"),
        (("--running", "--data-dir", "/nonexistent"), "no mesh runs on /nonexistent"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(forks: Forks, arguments: tuple[str, ...], words: str) -> None:
    refused = forks.run("chaos", *arguments)
    assert (refused.returncode, refused.stdout, len(refused.stderr.splitlines())) == (2, "", 1), refused.stderr
    assert words in refused.stderr
