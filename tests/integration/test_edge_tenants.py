"""Tenants at the edge: keys and tokens, lists of models, what the router is told, and changes while it runs."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest

from streamway.affinity import session_key
from streamway.auth import hash_key
from streamway.v1 import common_pb2
from tests.support.edge_world import EdgeWorld, edge_world, sse

SECRET = "0123456789abcdef0123456789abcdef"
ROWS = f"""
tenants:
  acme: {{tier: silver, weight: 5, keys: [{hash_key("sk-1")}]}}
  bolt: {{tier: bronze, keys: [{hash_key("sk-2")}], allowed_models: [other]}}
jwt: {{issuer: me, audience: mesh, secret_file: secret, session_claim: sid}}
"""


@pytest.fixture
def shared(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "secret").write_text(SECRET + "\n")
    path = tmp_path / "tenants.yaml"
    path.write_text(ROWS, encoding="utf-8")
    return {"mesh_token": "t", "tenants_file": path, "tenants_poll_s": 0.1}


def token(**more: Any) -> str:
    made = {"iss": "me", "aud": "mesh", "exp": time.time() + 600, "tenant": "acme", "sid": "s-1"} | more
    return jwt.encode(made, SECRET, "HS256")


async def models(world: EdgeWorld, key: str) -> tuple[int, list[str]]:
    headers = {"Authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession() as session, session.get(f"{world.url}/v1/models", headers=headers) as answer:
        body = await answer.json()
        return answer.status, [row["id"] for row in body.get("data", [])]


async def test_the_router_is_told_tenant_tier_and_weight_and_the_tokens_session(shared: dict[str, Any]) -> None:
    async with edge_world(shared) as world:
        headers = {"Authorization": f"Bearer {token()}"}
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{world.url}/v1/generations", json=body, headers=headers) as answer,
        ):
            await world.router.asked()
            del answer
        request = world.router.opened[0]
        assert request.tenant == "acme"
        assert request.session == session_key.of_claim("s-1")
        assert request.entitlement == common_pb2.Entitlement(tier=common_pb2.TIER_SILVER, weight=5, highest_priority=63)


async def test_a_tenant_sees_the_models_it_may_use(shared: dict[str, Any]) -> None:
    async with edge_world(shared) as world:
        status, mine = await models(world, "sk-1")
        assert status == 200
        assert mine
        assert await models(world, "sk-2") == (200, [])


async def test_bad_tokens_are_refused_and_strangers_may_do_nothing(shared: dict[str, Any]) -> None:
    async with edge_world(shared) as world:
        assert (await models(world, token()))[0] == 200
        assert (await models(world, token(exp=1)))[0] == 401
        assert (await models(world, token(aud="other")))[0] == 401
        assert (await models(world, token(tenant="nobody")))[0] == 403
        assert (await models(world, "sk-3"))[0] == 401


async def test_a_key_that_was_taken_away_is_refused_without_a_restart_and_a_bad_file_changes_nothing(
    shared: dict[str, Any],
) -> None:
    async with edge_world(shared) as world:
        assert (await models(world, "sk-1"))[0] == 200
        shared["tenants_file"].write_text(ROWS.replace(hash_key("sk-1"), hash_key("sk-new")))
        async with asyncio.timeout(30):
            while (await models(world, "sk-1"))[0] == 200:
                await asyncio.sleep(0.05)
        assert (await models(world, "sk-new"))[0] == 200
        shared["tenants_file"].write_text(ROWS.replace("silver", "best"))
        async with asyncio.timeout(30):
            while not await world.metric("streamway_config_reloads_total", outcome="refused"):
                await asyncio.sleep(0.05)
        assert (await models(world, "sk-new"))[0] == 200


def _cancelled(world: EdgeWorld) -> set[str]:
    return {*world.worker.cancelled, *world.router.cancelled}


async def _post(world: EdgeWorld, key: str, path: str, **body: Any) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{world.url}/v1/{path}", json={"model": "m"} | body, headers=headers) as answer,
    ):
        return answer.status, await answer.text()


async def test_http_answers_end_when_their_key_is_taken_away_and_nobody_elses_do(shared: dict[str, Any]) -> None:
    async with edge_world(shared, heartbeat_s=1.0) as world, asyncio.TaskGroup() as group:

        async def begin(key: str, path: str, **body: Any) -> tuple[asyncio.Task[tuple[int, str]], str]:
            """One that runs, with its generation."""
            known = len(world.router.opened)
            task = group.create_task(_post(world, key, path, **body))
            await world.router.until(lambda: len(world.router.opened) > known)
            return task, world.router.opened[known].generation

        messages = [{"role": "user", "content": "hi"}]
        stream, streamed = await begin("sk-1", "chat/completions", messages=messages, stream=True)
        whole, collected = await begin("sk-1", "chat/completions", messages=messages)
        response, responded = await begin("sk-1", "responses", input="hi", stream=True)
        answer, _ = await begin("sk-1", "responses", input="hi")
        other, others = await begin("sk-2", "chat/completions", messages=messages, stream=True)
        for id_ in (streamed, responded, others):
            world.speak(id_, "some ", finish=None)
        shared["tenants_file"].write_text(ROWS.replace(hash_key("sk-1"), hash_key("sk-new")))

        async with asyncio.timeout(30):
            status, told = await stream
            assert status == 200
            *_, last = sse(told)
            assert "some " in told
            assert last["error"]["code"] == "unauthenticated"
            status, told = await whole
            assert (status, json.loads(told)["error"]["code"]) == (401, "unauthenticated")
            status, told = await response
            assert status == 200
            assert "unauthenticated" in told.rpartition("event: ")[2]
            status, told = await answer
            assert (status, json.loads(told)["error"]["code"]) == (401, "unauthenticated")
            # As if those clients had left.
            while not {streamed, collected} <= _cancelled(world):
                await asyncio.sleep(0.02)
        assert others not in _cancelled(world)
        world.speak(others, "more", first=4)
        status, told = await other
        assert (status, sse(told)[-1]) == (200, "[DONE]")
        assert "more" in told


async def test_an_http_answer_ends_when_its_token_expires(shared: dict[str, Any]) -> None:
    shared["tenants_file"].write_text(ROWS.replace("session_claim", "leeway_s: 0, session_claim"))
    async with edge_world(shared, heartbeat_s=1.0) as world, asyncio.TaskGroup() as group:
        messages = [{"role": "user", "content": "hi"}]
        task = group.create_task(
            _post(world, token(exp=time.time() + 5), "chat/completions", messages=messages, stream=True)
        )
        asked = await world.router.asked()
        world.speak(asked.generation, "some ", finish=None)
        async with asyncio.timeout(30):
            status, told = await task
        assert status == 200
        assert sse(told)[-1]["error"]["code"] == "unauthenticated"
