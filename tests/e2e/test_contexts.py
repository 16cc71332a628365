"""Conversations that the mesh keeps, as clients see them: over HTTP and WebSocket, and after a router was killed."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.clients import Frames, frames, text_of
from tests.support.mesh import ENDS_SOON, MeshProcesses

pytestmark = pytest.mark.timeout(180)
SYSTEM = {"role": "system", "content": "You answer in one sentence. " * 30}


@pytest.fixture(scope="module")
def two_routers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshProcesses]:
    """A mesh whose routers may die."""
    processes = MeshProcesses(tmp_path_factory.mktemp("contexts"), arguments=("--routers", "2"), environment=ENDS_SOON)
    yield processes
    processes.close()


async def chat(
    mesh: MeshProcesses, use: str, *messages: dict[str, Any], session: str = "", **fields: Any
) -> tuple[int, dict[str, Any]]:
    """Status and body of a chat completion."""
    body = {"model": "simulated", "messages": messages, "max_tokens": 20, **fields}
    headers = {name: value for name, value in (("x-session-id", session), ("x-streamway-context", use)) if value}
    async with (
        aiohttp.ClientSession() as client,
        client.post(f"{mesh.edge_url}/v1/chat/completions", json=body, headers=headers) as response,
    ):
        return response.status, await response.json()


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def said(body: dict[str, Any]) -> dict[str, Any]:
    """The answer as a message."""
    return {"role": "assistant", "content": body["choices"][0]["message"]["content"]}


def prompt_tokens(body: dict[str, Any]) -> int:
    tokens: int = body["usage"]["prompt_tokens"]
    return tokens


async def ended(socket: Frames) -> list[dict[str, Any]]:
    """Every frame up to the end, which must be a good one."""
    seen: list[dict[str, Any]] = []
    async with asyncio.timeout(60):
        while not seen or seen[-1]["type"] not in ("finished", "error"):
            seen.append(await socket.receive(60))
    assert seen[-1]["type"] == "finished", seen[-1]
    return seen


async def test_a_conversation_goes_from_http_to_a_websocket_and_back_with_new_turns_only(
    two_routers: MeshProcesses,
) -> None:
    _, first = await chat(two_routers, "start", SYSTEM, user("one"), session="wander")
    async with frames(two_routers.websocket_url) as socket:
        await socket.send(
            type="open", id="a", model="simulated", messages=[user("two")], session="wander", context="append"
        )
        seen = await ended(socket)
    status, third = await chat(two_routers, "append", user("three"), session="wander")
    assert status == 200
    history = [SYSTEM, user("one"), said(first), user("two"), {"role": "assistant", "content": text_of(seen, "a")}]
    _, whole = await chat(two_routers, "", *history, user("three"), session="wander")
    assert prompt_tokens(third) == prompt_tokens(whole)


async def test_refusals_say_what_to_do_and_a_deleted_context_is_gone(two_routers: MeshProcesses) -> None:
    status, body = await chat(two_routers, "append", user("two"), session="nobody")
    assert (status, body["error"]["code"]) == (404, "context_not_found")
    assert "send the whole conversation" in body["error"]["message"]
    for use, session in (("append", ""), ("keep", "x"), ("start", "x" * 65)):
        status, body = await chat(two_routers, use, user("two"), session=session)
        assert (status, body["error"]["code"]) == (400, "invalid_argument")
    await chat(two_routers, "start", user("one"), session="to go")
    async with aiohttp.ClientSession() as client:
        for deleted in (True, False):
            async with client.delete(f"{two_routers.edge_url}/v1/contexts/to go") as response:
                assert await response.json() == {"id": "to go", "object": "context", "deleted": deleted}
        url, headers = f"{two_routers.edge_url}/v1/responses", {"x-streamway-context": "start", "x-session-id": "x"}
        async with client.post(url, json={"model": "simulated", "input": "hi"}, headers=headers) as response:
            assert response.status == 400, "a word that is not understood is not ignored"
    status, body = await chat(two_routers, "append", user("two"), session="to go")
    assert status == 404


async def test_after_kill_9_of_every_router_in_turn_a_conversation_goes_on_whole(two_routers: MeshProcesses) -> None:
    _, body = await chat(two_routers, "start", SYSTEM, user("question 0"), session="killed")
    history = [SYSTEM, user("question 0"), said(body)]
    for name in ("router-0", "router-1"):
        question = user(f"asked of {name}")
        async with frames(two_routers.websocket_url) as socket:
            # Its router dies while it runs; it is read at the worker, and nobody is there who hears its end.
            await socket.send(
                type="open",
                id="a",
                model="simulated",
                messages=[question],
                params={"max_tokens": 60},
                session="killed",
                context="append",
            )
            seen = await socket.until("token", "a")
            pid = two_routers.kill(name)
            seen += await ended(socket)
        history += [question, {"role": "assistant", "content": text_of(seen, "a")}]
        status, body = await chat(two_routers, "append", user("and then?"), session="killed")
        assert status == 200, body
        history += [user("and then?"), said(body)]
        await two_routers.restarted(name, pid)
    status, last = await chat(two_routers, "append", user("the last"), session="killed")
    assert status == 200
    _, whole = await chat(two_routers, "", *history, user("the last"), session="killed")
    assert prompt_tokens(last) == prompt_tokens(whole)


def test_the_commands_of_the_page_keep_a_conversation_and_delete_it(two_routers: MeshProcesses) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "contexts.md").read_text(encoding="utf-8")
    shown = page.partition("```sh\n")[2].partition("```")[0]
    commands = shown.replace("8f2c…", "page").replace('"m"', '"simulated", "max_tokens": 5')
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands.replace("curl ", "curl -sS -w '\\n' ")],
        env=os.environ | {"EDGE": two_routers.edge_url},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    first, second, deleted = map(json.loads, ran.stdout.splitlines())
    # The new turn alone was sent, and the engine read all of it.
    assert prompt_tokens(second) > prompt_tokens(first)
    assert deleted["deleted"] is True
