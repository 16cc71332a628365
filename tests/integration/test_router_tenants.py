"""Tenants at the router: whose a request is, what it may ask, what the worker is told."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import grpc.aio
import jwt
import pytest
from redis.asyncio import Redis

from streamway.affinity import session_key
from streamway.auth import hash_key
from streamway.errors import from_rpc_error, from_status
from streamway.lanes import request_of
from streamway.v1 import common_pb2, router_pb2
from tests.support.router_mesh import ConnectStream, Mesh, ask, mesh, until
from tests.support.valkey_server import ValkeyServer

ROWS = f"""
tenants:
  acme: {{tier: silver, weight: 5, keys: [{hash_key("acme")}]}}
  bolt: {{tier: bronze, keys: [{hash_key("bolt")}], allowed_models: [other]}}
"""


@pytest.fixture
def shared(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "tenants.yaml"
    path.write_text(ROWS, encoding="utf-8")
    return {"mesh_token": "secret", "tenants_file": path, "tenants_poll_s": 0.1}


def bearer(key: str) -> grpc.aio.Metadata:
    return grpc.aio.Metadata(("authorization", f"Bearer {key}"))


async def accepted(made: Mesh, request: common_pb2.GenerationRequest, metadata: Any) -> common_pb2.Accepted:
    call = made.stub.Generate(router_pb2.GenerateRequest(request=request), metadata=metadata)
    response = await call.read()
    assert response is not grpc.aio.EOF, await call.code()
    return response.events[0].accepted


async def refused(made: Mesh, request: common_pb2.GenerationRequest, metadata: Any) -> str:
    call = made.stub.Generate(router_pb2.GenerateRequest(request=request), metadata=metadata)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    return from_rpc_error(caught.value).name


async def test_a_priority_above_the_highest_is_lowered_and_told_and_the_worker_knows_the_weight(
    valkey: Redis, valkey_server: ValkeyServer, shared: dict[str, Any]
) -> None:
    async with mesh(valkey, valkey_server.url, shared=shared) as made:
        request = ask(priority=100)
        # Nobody is gold by saying so.
        request.entitlement.CopyFrom(common_pb2.Entitlement(tier=common_pb2.TIER_GOLD, weight=99, highest_priority=127))
        told = await accepted(made, request, bearer("acme"))
        assert told.HasField("lowered_priority")
        assert told.lowered_priority == 63
        found = (await request_of(valkey, [request.generation]))[0]
        assert found is not None
        assert found[0].priority == 63
        assert found[0].entitlement == common_pb2.Entitlement(
            tier=common_pb2.TIER_SILVER, weight=5, highest_priority=63
        )
        plain = await accepted(made, ask(priority=63), bearer("acme"))
        assert not plain.HasField("lowered_priority")


async def test_what_an_edge_carried_is_believed_with_the_mesh_token_only(
    valkey: Redis, valkey_server: ValkeyServer, shared: dict[str, Any]
) -> None:
    async with mesh(valkey, valkey_server.url, shared=shared) as made:
        request = ask(tenant="new", priority=5)
        assert await refused(made, request, made.metadata) == "permission_denied"
        request.entitlement.CopyFrom(common_pb2.Entitlement(tier=common_pb2.TIER_GOLD, weight=4, highest_priority=127))
        told = await accepted(made, request, made.metadata)
        assert not told.HasField("lowered_priority")


async def test_a_token_is_a_credential_here_too_and_names_the_session(
    valkey: Redis, valkey_server: ValkeyServer, shared: dict[str, Any], tmp_path: Path
) -> None:
    secret = "0123456789abcdef0123456789abcdef"
    (tmp_path / "secret").write_text(secret)
    rules = "jwt: {issuer: me, audience: mesh, secret_file: secret, session_claim: sid}\n"
    shared["tenants_file"].write_text(ROWS + rules)
    claims = {"iss": "me", "aud": "mesh", "exp": time.time() + 600, "tenant": "acme", "sid": "s-1"}
    async with mesh(valkey, valkey_server.url, shared=shared) as made:
        good = bearer(jwt.encode(claims, secret, "HS256"))
        assert (await accepted(made, ask(), good)).session == session_key.of_claim("s-1")
        assert (await accepted(made, ask(session="named"), good)).session == session_key.of_id("named")
        late = bearer(jwt.encode(claims | {"exp": 1}, secret, "HS256"))
        assert await refused(made, ask(), late) == "unauthenticated"
        stranger = bearer(jwt.encode(claims | {"tenant": "nobody"}, secret, "HS256"))
        assert await refused(made, ask(), stranger) == "permission_denied"


async def test_a_model_that_is_not_the_tenants_is_refused(
    valkey: Redis, valkey_server: ValkeyServer, shared: dict[str, Any]
) -> None:
    async with mesh(valkey, valkey_server.url, shared=shared) as made:
        assert await refused(made, ask(), bearer("bolt")) == "permission_denied"
        assert await refused(made, ask(model="other"), bearer("bolt")) == "model_not_found"


async def test_a_changed_row_and_a_new_key_count_without_a_restart(
    valkey: Redis, valkey_server: ValkeyServer, shared: dict[str, Any]
) -> None:
    async with mesh(valkey, valkey_server.url, shared=shared) as made:
        assert await refused(made, ask(), bearer("later")) == "unauthenticated"
        shared["tenants_file"].write_text(ROWS + f"  late: {{tier: gold, keys: [{hash_key('later')}]}}\n")
        async with asyncio.timeout(30):
            while True:
                call = made.stub.ListModels(router_pb2.ListModelsRequest(), metadata=bearer("later"))
                if await call.code() is grpc.StatusCode.OK:
                    break
                await asyncio.sleep(0.05)
        assert (await accepted(made, ask(priority=127), bearer("later"))).model == "m"
        shared["tenants_file"].write_text("tenants: {late: {tier: lead}}")
        await asyncio.sleep(0.5)
        assert (await accepted(made, ask(), bearer("later"))).model == "m", "the last good one is kept"


async def test_a_tenant_is_told_of_no_models_but_its_own(
    valkey: Redis, valkey_server: ValkeyServer, shared: dict[str, Any]
) -> None:
    async with mesh(valkey, valkey_server.url, shared=shared) as made:

        async def listed(metadata: Any, tenant: str = "") -> list[str]:
            answer = await made.stub.ListModels(router_pb2.ListModelsRequest(tenant=tenant), metadata=metadata)
            return [model.name for model in answer.models]

        everything = await listed(made.metadata)
        assert everything
        assert await listed(bearer("acme")) == everything
        assert await listed(bearer("bolt")) == []
        # Only a service of ours may ask for others.
        assert await listed(bearer("bolt"), "acme") == []
        assert await listed(made.metadata, "bolt") == []
        assert await listed(made.metadata, "acme") == everything
        assert await listed(made.metadata, "nobody") == []
        call = made.stub.Generate(router_pb2.GenerateRequest(request=ask(model="other")), metadata=bearer("bolt"))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert f"served now: {everything[0]}" not in str(caught.value.details())
        assert "served now: none that may be used" in str(caught.value.details())


async def test_an_open_stream_whose_key_is_taken_away_ends_and_what_it_reads_is_told(
    valkey: Redis, valkey_server: ValkeyServer, shared: dict[str, Any]
) -> None:
    async with mesh(valkey, valkey_server.url, shared=shared, credentials_check_s=0.2) as made:
        stream = ConnectStream(made.stub.Connect(metadata=bearer("acme")))
        peer = made.connect()
        generation = await stream.open(ask(), location=False)
        await until(lambda: "accepted" in stream.kinds(generation), 20)
        shared["tenants_file"].write_text(ROWS.replace(hash_key("acme"), hash_key("new")))
        await until(lambda: stream.ended, 30)
        assert from_status(stream.of(generation)[-1].error.status).name == "going_away"
        assert stream.error is not None
        assert from_rpc_error(stream.error).name == "unauthenticated"
        assert not peer.ended
        await peer.close()


async def test_an_open_stream_whose_key_is_taken_away_takes_nothing_new_at_once(
    valkey: Redis, valkey_server: ValkeyServer, shared: dict[str, Any]
) -> None:
    async with mesh(valkey, valkey_server.url, shared=shared, credentials_check_s=30) as made:
        stream = ConnectStream(made.stub.Connect(metadata=bearer("acme")))
        shared["tenants_file"].write_text(ROWS.replace(hash_key("acme"), hash_key("new")))
        async with asyncio.timeout(30):
            while True:
                told = await stream.first(await stream.open(ask()), 20)
                if told.HasField("error"):
                    break
                await asyncio.sleep(0.05)
        assert from_status(told.error.status).name == "unauthenticated"
        await stream.close()
