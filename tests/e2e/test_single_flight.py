"""Identical questions at the same time, in a real mesh: one engine call, each client with the whole answer and its own cancel."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.clients import assert_positions_tile, frames, text_of
from tests.support.mesh import MeshProcesses

pytestmark = pytest.mark.timeout(180)


def ask(prompt: str, tokens: int) -> dict[str, Any]:
    params = {"max_tokens": tokens, "temperature": 0.0}
    return {"model": "simulated", "messages": [{"role": "user", "content": prompt}], "params": params}


async def test_h3_a_cancelled_leader_ends_for_itself_and_its_follower_gets_all_and_is_resumed(
    mesh: MeshProcesses,
) -> None:
    async with frames(mesh.websocket_url) as leader, frames(mesh.websocket_url) as follower:
        await leader.send(type="open", id="a", session="s", **ask("the same question of two", 150))
        led = (await leader.until("accepted", "a"))[-1]
        await leader.until("token", "a")
        await follower.send(type="open", id="b", session="s", **ask("the same question of two", 150))
        told = (await follower.until("accepted", "b"))[-1]
        assert told["follows"] == led["generation"]
        assert told["generation"] != led["generation"]
        await leader.send(type="cancel", id="a")
        assert (await leader.until("error", "a"))[-1]["reason"] == "cancelled"
        seen = [told, *await follower.until("finished", "b")]
        assert_positions_tile(seen, "b")
        assert seen[-1]["usage"]["completion_tokens"] == 150

        await leader.send(type="resume", id="c", generation=told["generation"])
        again = await leader.until("finished", "c")
        assert text_of(again, "c") == text_of(seen, "b"), "by its own id, from its beginning"
