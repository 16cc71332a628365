"""The steps of `make compose-test`, each with its time. Exit code 1: something did not hold; 2: there is no engine to run on."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from subprocess import CalledProcessError

import aiohttp
from openai import AsyncOpenAI

from scripts import images
from scripts.docker_engine import NoEngine, engine
from scripts.make_secrets import make
from scripts.roll import roll
from services.supervisor.chaos.runner import simulated_answer
from tests.compose.containers import ROOT, Failed, Project, have, run
from tests.compose.load import SEED, Doors, Load
from tests.support.ports import free_port

# As in docker-compose.yml.
BASE = "python:3.11-slim-bookworm"
VALKEY = "valkey/valkey:8.1-alpine"
# Streams that last long enough for what is done to them.
SETTINGS = "STREAMWAY_ADAPTER_SIMULATION__TOKENS_PER_S=40\nSTREAMWAY_ADAPTER_SLOTS=64\n"
IMAGES = {"edge": "edge", "router": "router", "cache": "cache", "adapter": "adapter", "tools": "tools"}


@asynccontextmanager
async def step(name: str) -> AsyncIterator[list[str]]:
    """Prints what begins, and how long it took and what came of it."""
    print(f"{name} …", flush=True)
    began, told = time.monotonic(), list[str]()
    yield told
    print(f"  {time.monotonic() - began:.1f} s{''.join(f'; {line}' for line in told)}", flush=True)


async def off_loop(function: object, *arguments: object, **named: object) -> object:
    """Commands wait; streams go on meanwhile."""
    return await asyncio.to_thread(function, *arguments, **named)  # type: ignore[arg-type]


async def build(project: Project) -> None:
    async with step("building the images") as told:
        try:
            await off_loop(images.build, project.command)
        except CalledProcessError as problem:
            raise Failed(f"exit code {problem.returncode}: {' '.join(problem.cmd)}") from None
        told.append(sizes())


def sizes() -> str:
    """Of the images, and of what they are built on."""
    base = os.environ.get("BASE", BASE)
    names = {name: f"streamway-{image}" for name, image in IMAGES.items()} | {"base": base}
    found = {
        name: int(run(["docker", "image", "inspect", "--format", "{{.Size}}", image], 20))
        for name, image in names.items()
    }
    return ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in found.items())


async def every_surface(doors: Doors) -> None:
    """The same question through OpenAI's SDK, plain HTTP, a WebSocket, server-sent events and gRPC."""
    async with step("streaming on every surface") as told:
        prompt, tokens = "surfaces: how does a river find the sea?", 40
        expected = simulated_answer(prompt, tokens)
        messages = [{"role": "user", "content": prompt}]
        key = doors.credentials["Authorization"].removeprefix("Bearer ")
        async with AsyncOpenAI(base_url=f"{doors.edge_url}/v1", api_key=key, max_retries=0) as client:
            stream = await client.chat.completions.create(
                model="simulated",
                messages=messages,
                stream=True,
                max_tokens=tokens,
                seed=SEED,  # type: ignore[arg-type]
            )
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
            same(text, expected, "OpenAI's SDK")
        body = {"model": "simulated", "messages": messages, "max_tokens": tokens, "seed": SEED}
        async with (
            aiohttp.ClientSession(headers=doors.credentials) as session,
            session.post(f"{doors.edge_url}/v1/chat/completions", json=body) as response,
        ):
            same((await response.json())["choices"][0]["message"]["content"], expected, "plain HTTP")
        async with aiohttp.ClientSession() as session, session.get(f"{doors.edge_url}/v1/models") as response:
            same(str(response.status), "401", "a caller without a key")
        load = Load(doors, "surfaces")
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(load.stream(tokens))
        told.append(f"OpenAI's SDK, HTTP; {load.judge()}")


def same(found: str, expected: str, what: str) -> None:
    if found != expected:
        raise Failed(f"{what}: {found!r} instead of {expected!r}")


async def locked_down(project: Project) -> None:
    """What Compose was told is what the engine does."""
    async with step("looking into the containers") as told:
        for service in ("cache", "adapter", "router", "edge"):
            for container in project.ids(service):
                host = project.inspect(container)["HostConfig"]
                same(
                    f"{host['ReadonlyRootfs']} {host['CapDrop']} {host['Memory'] > 0} {host['NanoCpus'] > 0}",
                    "True ['ALL'] True True",
                    f"the limits of {service}",
                )
            look = "id -u; touch /opt/streamway/x 2>&1; ls /opt/streamway/lib/python3*/site-packages/services"
            inside = run(["docker", "exec", project.ids(service)[0], "/bin/sh", "-c", look], 20)
            words = inside.split()
            folder = "inference_adapter" if service == "adapter" else service
            others = {"cache", "inference_adapter", "router", "edge", "supervisor"} - {folder}
            if words[0] != "10001" or "Read-only" not in inside or folder not in words or others & {*words}:
                raise Failed(f"{service} is not what it should be inside: {inside}")
        told.append("user 10001, read-only root, no capability, limits, one service each")


async def kill_a_worker(project: Project, doors: Doors) -> None:
    async with step("killing a worker under load") as told:
        load = Load(doors, "kill")
        async with asyncio.TaskGroup() as group:
            for _ in range(18):
                group.create_task(load.stream(240))
            await load.streaming(12, 30)
            (worker, streams), *_ = load.workers().most_common()
            container = worker.removeprefix("adapter-")
            await off_loop(project.kill, container)
        told.append(f"{worker} had {streams}; {load.judge()}")
        await project.healthy("adapter", 2)
        restarts = project.inspect(container)["RestartCount"]
        same(str(restarts), "1", "the engine's count of restarts of what was killed")


async def scale(project: Project, doors: Doors, number: int) -> None:
    async with step(f"scaling to {number} workers") as told:
        await off_loop(project.up, "--no-recreate", "--scale", f"adapter={number}")
        limit = time.monotonic() + 60
        load = Load(doors, "scale")
        while len(load.workers()) < number:
            if time.monotonic() > limit:
                raise Failed(f"work came to {sorted(load.workers())} only")
            async with asyncio.TaskGroup() as group:
                for _ in range(9):
                    group.create_task(load.stream(20))
        told.append(
            f"{load.judge()}, on {', '.join(f'{name} {count}' for name, count in sorted(load.workers().items()))}"
        )
        shown = str(await off_loop(project.tools, "status"))
        if missing := [worker for worker in load.workers() if worker not in shown]:
            raise Failed(f"`streamway status` does not show {missing}:\n{shown}")


async def rolling(project: Project, doors: Doors) -> None:
    """Streams begin and end all the time while every container but Valkey's is replaced."""
    async with step("replacing every container under load") as told:
        before = {each for service in ("cache", "adapter", "router", "edge") for each in project.ids(service)}
        load, done = Load(doors, "roll"), asyncio.Event()

        async def again() -> None:
            while not done.is_set():
                await load.stream(120)

        async def look() -> None:
            while not done.is_set():
                with suppress(Failed):  # a container went between two of its commands
                    await off_loop(doors.look)
                await asyncio.sleep(0.5)

        async with asyncio.TaskGroup() as group:
            for _ in range(9):
                group.create_task(again())
            group.create_task(look())
            try:
                await load.streaming(6, 20)
                await off_loop(roll, project.command)
            finally:
                done.set()
        told.append(load.judge())
        after = {each for service in ("cache", "adapter", "router", "edge") for each in project.ids(service)}
        if before & after or len(after) != len(before):
            raise Failed(f"{len(before)} containers before, {len(after)} after, {len(before & after)} of them the same")


async def down(project: Project) -> None:
    async with step("stopping") as told:
        ids = [(service, each) for service in ("edge", "router", "adapter", "cache") for each in project.ids(service)]
        await off_loop(project.compose, "stop", within_s=180.0)
        codes = {f"{service}": project.inspect(each)["State"]["ExitCode"] for service, each in ids}
        if any(codes.values()):
            raise Failed(f"exit codes {codes}")
        told.append("every service ended with 0")


async def real(project: Project, key: str) -> None:
    """As it is shipped: the model in the image, on llama.cpp."""
    async with step("the shipped model on llama.cpp") as told:
        os.environ["ENGINE"] = "llamacpp"
        began = time.monotonic()
        await off_loop(project.up, "--scale", "adapter=1")
        told.append(f"healthy after {time.monotonic() - began:.1f} s")
        doors = Doors(project, key)
        async with AsyncOpenAI(base_url=f"{doors.edge_url}/v1", api_key=key, max_retries=0) as client:
            model = (await client.models.list()).data[0].id
            answer = await client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": "Name a colour."}], max_tokens=24
            )
        text = answer.choices[0].message.content or ""
        if not text.strip() or answer.usage is None or not answer.usage.completion_tokens:
            raise Failed(f"no answer: {answer}")
        told.append(f"{model}: {' '.join(text.split())[:60]!r}")


async def course(project: Project, key: str, arguments: argparse.Namespace) -> None:
    try:
        if not arguments.no_build:
            await build(project)
        async with step("starting") as told:
            began = time.monotonic()
            await off_loop(project.up)
            told.append(f"all healthy after {time.monotonic() - began:.1f} s")
        doors = Doors(project, key)
        await every_surface(doors)
        await locked_down(project)
        await kill_a_worker(project, doors)
        await scale(project, doors, 3)
        await rolling(project, doors)
        await down(project)
        if not arguments.no_model:
            await real(project, key)
    finally:
        if arguments.keep:
            print(f"left running as asked: {' '.join(project.command)} down --volumes", flush=True)
        else:
            await off_loop(project.compose, "down", "--volumes", "--remove-orphans", "--timeout", "20", within_s=180.0)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make compose-test ARGS=", description=__doc__)
    parser.add_argument("--offline", action="store_true", help="Valkey from its wheel instead of its image")
    parser.add_argument("--no-build", action="store_true", help="use the images that are there")
    parser.add_argument("--no-model", action="store_true", help="leave the model and llama.cpp out")
    parser.add_argument("--keep", action="store_true", help="leave the containers running")
    parser.add_argument("--where-possible", action="store_true", help="where no engine answers, say so and end well")
    arguments = parser.parse_args(words)
    try:
        compose, version = engine()
        if not arguments.no_build:
            have(os.environ.get("BASE", BASE))
        if not arguments.offline:
            have(os.environ.get("VALKEY_IMAGE", VALKEY))
    except NoEngine as problem:
        print(f"compose-test: not run, {problem}", flush=True)
        return 0 if arguments.where_possible else 2
    print(f"compose-test: {version}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="streamway-compose-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        key = make(folder) or ""
        with (folder / "compose.env").open("a", encoding="utf-8") as file:
            file.write(SETTINGS)
        os.environ.update(
            RUN=name,
            PORT=str(free_port()),
            ENGINE="simulated",
            MODEL="none" if arguments.no_model else "smollm2",
            COMPOSE_PROFILES="tools",
        )
        project = Project(compose, folder, arguments.offline)
        failed = False
        try:
            asyncio.run(course(project, key, arguments))
        except* (Failed, OSError, aiohttp.ClientError, KeyError, json.JSONDecodeError) as problems:
            failed = True
            for problem in problems.exceptions:
                said = str(problem) if isinstance(problem, Failed) else repr(problem)
                print(f"compose-test: failed: {said}", flush=True)
    if failed:
        return 1
    print(f"compose-test: all of it held, {time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
