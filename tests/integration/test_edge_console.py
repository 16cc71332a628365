"""What the console's pages ask an edge for: by whom, with a real store behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from redis.asyncio import Redis

from services.edge.app import Edge
from services.edge.settings import EdgeSettings
from services.supervisor.io.control import Control
from streamway.auth import hash_key
from streamway.config import SharedSettings
from streamway.quota import Demand, reserve
from streamway.runtime.clock import SystemClock
from streamway.runtime.tasks import TaskScope
from streamway.tenancy import Quota
from streamway.valkey.leases import Lease
from streamway.valkey.link import Link
from tests.support.adapter_world import eventually
from tests.support.valkey_server import ValkeyServer

ROWS = f"""
tenants:
  ops: {{tier: silver, keys: [{hash_key("key of ops")}]}}
  acme:
    tier: gold
    keys: [{hash_key("key of acme")}]
    concurrency: 4
    requests_per_minute: 10
    models: {{m: {{concurrency: 2}}}}
"""
ACME = Quota(concurrency=4, requests_per_minute=10)


class Victim:
    """A process that may be killed; it has the number of none."""

    pid = 0
    running = False


@pytest.fixture
async def edge(valkey: Redis, valkey_server: ValkeyServer, tmp_path: Path) -> AsyncIterator[Edge]:
    tenants = tmp_path / "tenants.yaml"
    tenants.write_text(ROWS, encoding="utf-8")
    control = Control(tmp_path / "c.sock", lambda: {"adapter-0": Victim()}, lambda _: None)
    await control.start()
    settings = EdgeSettings(
        port=0,
        operations_port=0,
        id="edge-7",
        operators=["ops"],
        failures_socket=tmp_path / "c.sock",
        trace_url="http://127.0.0.1:1/{trace_id}",
        allowed_origins=["https://friend.example"],
    )
    shared: dict[str, Any] = {"valkey_url": valkey_server.url, "mesh_token": "t", "tenants_file": tenants}
    made = Edge(settings, SharedSettings(**shared))
    await made.start()
    yield made
    await made.close()
    await control.close()


async def get(edge: Edge, path: str, who: str = "", **headers: str) -> tuple[int, Any]:
    return await ask(edge, "GET", path, who, None, headers)


async def ask(
    edge: Edge, method: str, path: str, who: str, body: str | None, headers: dict[str, str]
) -> tuple[int, Any]:
    if who:
        headers = {"Authorization": f"Bearer key of {who}", **headers}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.request(method, f"http://{edge.address}{path}", data=body) as answer,
    ):
        return answer.status, await answer.json()


async def test_operators_see_the_mesh_and_other_tenants_nothing_of_it(edge: Edge, valkey: Redis) -> None:
    fields = {"address": "h:1", "models": '[{"name": "m"}]', "slots": "4", "running": "1"}
    lease = Lease(valkey, SystemClock(), "worker", "adapter-0", lambda: fields, lease_s=60)
    await lease.renew()
    await valkey.xadd("sw:lane:{adapter-0}:gold", {"x": "1"})
    await valkey.xadd("sw:pool:{m}:bulk", {"x": "1"})

    async def edges() -> list[str]:
        status, told = await get(edge, "/v1/mesh", "ops")
        assert status == 200
        return [row["id"] for row in told["edges"]]

    await eventually(edges, ["edge-7"])
    _, told = await get(edge, "/v1/mesh", "ops")
    (worker,) = told["workers"]
    assert (worker["id"], worker["lanes"]["gold"]) == ("adapter-0", {"running": 0, "waiting": 1})
    assert told["pools"] == [{"model": "m", "lanes": {"gold": 0, "silver": 0, "bronze": 0, "bulk": 1}}]
    assert told["store"]["used_bytes"] > 0
    for path in ("/v1/mesh", "/v1/failures"):
        status, told = await get(edge, path, "acme")
        assert (status, told["error"]["code"]) == (403, "permission_denied")
        assert "STREAMWAY_EDGE_OPERATORS" in told["error"]["message"]
        assert (await get(edge, path))[0] == 401
    assert (await get(edge, "/v1/console"))[0] == 401
    assert await get(edge, "/v1/console", "acme") == (200, {"trace_url": "http://127.0.0.1:1/{trace_id}"})


async def test_a_tenant_sees_its_own_limits_and_what_it_has_used_and_an_operator_everybodys(
    edge: Edge, valkey_server: ValkeyServer
) -> None:
    link = Link(valkey_server.url, SystemClock())
    async with TaskScope("test") as scope:
        running = scope.spawn(link.run(), "link")
        demand = Demand("g-1", "acme", "m", 10, ACME, Quota(concurrency=2))
        assert (await reserve(await link.session(), demand, 60_000, 1.0)).refusal is None
        running.cancel()
    _, told = await get(edge, "/v1/tenants", "acme")
    assert (told["operator"], [row["name"] for row in told["tenants"]]) == (False, ["acme"])
    (row,) = told["tenants"]
    assert row["limits"]["concurrency"] == 4
    assert row["used"]["slots"] == 1
    assert 9 <= row["used"]["requests_left"] < 10
    assert row["used"]["tokens_left"] is None
    (model,) = row["models"]
    assert (model["model"], model["used"]["slots"], model["limits"]["concurrency"]) == ("m", 1, 2)
    _, told = await get(edge, "/v1/tenants", "ops")
    assert (told["operator"], [row["name"] for row in told["tenants"]]) == (True, ["acme", "ops"])
    assert (await get(edge, "/v1/tenants"))[0] == 401


async def test_only_a_page_of_this_edge_may_have_a_worker_killed(edge: Edge) -> None:
    async def deed(who: str = "ops", body: str = '{"deed": "kill"}', **headers: str) -> int:
        given = {
            "Content-Type": "application/json",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        return (await ask(edge, "POST", "/v1/failures/adapter-0", who, body, given))[0]

    assert await get(edge, "/v1/failures", "ops") == (
        200,
        {"available": True, "workers": [{"name": "adapter-0", "state": "down"}]},
    )
    own = f"http://{edge.address}"
    # What is allowed gets as far as the supervisor, which says that this worker does not run.
    assert await deed() == 409
    assert await deed(Origin=own, Sec_Fetch_Site="same-origin") == 409
    assert await deed(Origin="https://evil.example") == 403
    assert await deed(Origin="https://friend.example") == 403, "it may ask models, not kill workers"
    assert await deed(Origin=own, Sec_Fetch_Site="cross-site") == 403
    assert await deed(Origin="null") == 403
    assert await deed(Content_Type="text/plain") == 415
    assert await deed(Content_Type="application/x-www-form-urlencoded") == 415
    assert await deed(who="acme") == 403
    assert await deed(who="") == 401
    assert await deed(body="{}") == 400
    assert await deed(body="x" * 5000) == 413
    status, _ = await ask(
        edge, "POST", "/v1/failures/router-0", "ops", '{"deed":"kill"}', {"Content-Type": "application/json"}
    )
    assert status == 404
