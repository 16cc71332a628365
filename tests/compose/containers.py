"""A Docker engine and one project of Compose on it, by their commands."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.docker_engine import NoEngine

ROOT = Path(__file__).resolve().parents[2]
PROJECT = "streamway-test"


class Failed(Exception):
    """A command failed, or something did not come about in time."""


def run(command: Sequence[str], within_s: float, shown: bool = False) -> str:
    """Its output. With `shown` both streams go to the terminal. Raises Failed."""
    where = None if shown else subprocess.PIPE
    try:
        done = subprocess.run(
            command,
            stdout=where,
            stderr=where,
            text=True,
            timeout=within_s,
            cwd=ROOT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"not done within {within_s:g} s: {' '.join(command)}") from None
    if done.returncode:
        raise Failed(f"exit code {done.returncode}: {' '.join(command)}\n{(done.stderr or '')[-3000:]}")
    return done.stdout or ""


def have(image: str) -> None:
    """Makes sure that an image is there. Raises NoEngine where it is not and cannot be pulled."""
    try:
        run(["docker", "image", "inspect", image], 20)
    except Failed:
        try:
            run(["docker", "pull", "--quiet", image], 600)
        except Failed:
            raise NoEngine(f"the image {image} is not there and cannot be pulled") from None


class Project:
    """The mesh as containers. Names are "adapter", "router" …; a container is known by its id. Compose reads our environment."""

    def __init__(self, compose: Sequence[str], folder: Path, offline: bool) -> None:
        files = ["docker-compose.yml", "tests/compose/test.yml", *(["tests/compose/offline.yml"] if offline else [])]
        self.command = [*compose, "--project-name", PROJECT, "--env-file", str(folder / "compose.env")]
        self.command += [word for file in files for word in ("--file", file)]
        self.command += ["--project-directory", str(ROOT)]

    def compose(self, *words: str, within_s: float = 120.0, shown: bool = False) -> str:
        return run([*self.command, *words], within_s, shown)

    def up(self, *words: str, within_s: float = 300.0) -> None:
        """Starts what is missing and waits until all is healthy. Raises Failed with the logs of what is not."""
        services = ("valkey", "cache", "adapter", "router", "edge")
        try:
            self.compose("up", "--detach", "--no-build", "--wait", "--wait-timeout", f"{within_s:g}", *words, *services,
                         within_s=within_s + 60)  # fmt: skip
        except Failed as problem:
            logs = self.compose("logs", "--tail", "15", "--no-color")
            raise Failed(f"{problem}\n{self.compose('ps', '--all')}\n{logs}") from None

    def ids(self, service: str) -> list[str]:
        """Of its running containers."""
        return self.compose("ps", "--quiet", service).split()

    def inspect(self, container: str) -> dict[str, Any]:
        """What the engine knows of it."""
        found: dict[str, Any] = json.loads(run(["docker", "inspect", container], 20))[0]
        return found

    def published(self, service: str, port: int) -> list[str]:
        """ "host:port" on this machine for each container of a service."""
        ports = [self.inspect(container)["NetworkSettings"]["Ports"] for container in self.ids(service)]
        rows = [row for each in ports for row in each.get(f"{port}/tcp") or []]
        return sorted(f"{row['HostIp']}:{row['HostPort']}" for row in rows)

    def tools(self, *words: str) -> str:
        """What `streamway …` prints inside the mesh's network."""
        return self.compose("run", "--rm", "--no-deps", "-T", "tools", *words)

    def kill(self, container: str) -> None:
        """SIGKILL to the process in it, from inside: to the engine that is a crash, and it starts it again."""
        run(["docker", "exec", container, "/bin/sh", "-c", "kill -9 -1"], 20)

    async def healthy(self, service: str, number: int, within_s: float = 90.0) -> None:
        """Waits until so many of its containers are. Raises Failed."""
        limit = asyncio.get_running_loop().time() + within_s
        while True:
            states = [self.inspect(each)["State"] for each in self.ids(service)]
            if [state.get("Health", {}).get("Status") for state in states] == ["healthy"] * number:
                return
            if asyncio.get_running_loop().time() > limit:
                raise Failed(f"{service}: not {number} healthy containers within {within_s:g} s, but {states}")
            await asyncio.sleep(0.5)
