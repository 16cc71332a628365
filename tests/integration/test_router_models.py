"""Names of models at a real router: aliases, fallbacks, choices, several models at one worker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from redis.asyncio import Redis

from streamway.errors import from_status
from streamway.v1 import common_pb2, router_pb2
from streamway.valkey import keys
from tests.support.router_mesh import Mesh, ask, mesh, until
from tests.support.valkey_server import ValkeyServer


def _models(*names: str, first_token_ms: float = 0) -> str:
    return json.dumps([{"name": name, "context_tokens": 100, "first_token_ms": first_token_ms} for name in names])


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "streamway.yaml"
    path.write_text(
        "models: {aliases: {gpt: m}, fallbacks: {m: [n], gone: [m]},"
        " choices: {assistant: {large: m, small: n, first_token_ms: 1000, hold_s: 0}}}"
    )
    monkeypatch.setenv("STREAMWAY_CONFIG", str(path))
    return path


async def _ask(made: Mesh, model: str, **fields: object) -> common_pb2.Event:
    stream = made.connect()
    event = await stream.first(await stream.open(ask(model=model, **fields)))
    await stream.close()
    return event


async def _says(made: Mesh, number: int, **fields: str) -> None:
    worker = made.workers[number]
    worker.fields |= fields
    await worker.lease.renew()


@pytest.mark.usefixtures("config")
async def test_an_alias_is_resolved_before_cache_lane_and_worker(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with mesh(valkey, valkey_server.url) as made:
        asked = await _ask(made, "gpt")
        accepted = asked.accepted
        assert (accepted.model, accepted.worker) == ("m", "w0")
        assert await valkey.hget(keys.generation(asked.generation), "model") == b"m"


async def test_an_unknown_name_is_told_what_there_is(valkey: Redis, valkey_server: ValkeyServer, config: Path) -> None:
    async with mesh(valkey, valkey_server.url) as made:
        refused = from_status((await _ask(made, "nope")).error.status)
        assert refused.name == "model_not_found"
        assert "'nope'" in refused.message
        assert "served now: assistant, gpt, m" in refused.message
        config.write_text("models: {aliases: {nope: m}}")
        watch = made.app._models
        await until(lambda: watch.routing.aliases == {"nope": "m"})
        assert (await _ask(made, "nope")).accepted.model == "m"
        config.write_text("models: {aliases: {nope: 3}}")
        assert not await watch.look()
        assert (await _ask(made, "nope")).accepted.model == "m", "the last good names count"


@pytest.mark.usefixtures("config")
async def test_names_are_listed_with_what_they_stand_for(valkey: Redis, valkey_server: ValkeyServer) -> None:
    async with mesh(valkey, valkey_server.url) as made:
        listed = await made.stub.ListModels(router_pb2.ListModelsRequest(), metadata=made.metadata)
        rows = {model.name: (list(model.stands_for), model.workers) for model in listed.models}
        assert rows == {"assistant": (["m"], 1), "gpt": (["m"], 1), "m": ([], 1)}


@pytest.mark.usefixtures("config")
async def test_a_fallback_takes_what_nobody_serves_what_is_full_and_what_drains(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with mesh(valkey, valkey_server.url, workers=2, poll_s=0.05, queue_limit=0) as made:
        assert (await _ask(made, "gone")).accepted.model == "m"
        registry = made.app._made().registry
        await _says(made, 0, models=_models("m"), slots="1")
        await _says(made, 1, models=_models("n"), slots="3")
        await until(lambda: registry.worker("w0").slots == 1 and registry.worker("w1").slots == 3)
        assert registry.tasks(registry.worker("w0")) == 1 or (await _ask(made, "m")).accepted.model == "m"
        assert (await _ask(made, "m")).accepted.model == "n", "the queue of m is full"
        await _says(made, 0, draining="1")
        await until(lambda: registry.worker("w0").draining)
        assert (await _ask(made, "gpt")).accepted.model == "n"
        await _says(made, 1, draining="1")
        await until(lambda: registry.worker("w1").draining)
        refused = from_status((await _ask(made, "gpt")).error.status)
        assert (refused.name, "'m'" in refused.message) == ("no_workers", True)


@pytest.mark.usefixtures("config")
async def test_a_choice_follows_the_large_ones_first_token_and_memory(
    valkey: Redis, valkey_server: ValkeyServer
) -> None:
    async with mesh(valkey, valkey_server.url, workers=2, poll_s=0.05, worker_fields={"slots": "1000"}) as made:

        async def chosen(wanted: str) -> None:
            for _ in range(100):
                if (await _ask(made, "assistant")).accepted.model == wanted:
                    return
                await asyncio.sleep(0.05)
            raise AssertionError(f"never {wanted}")

        await _says(made, 1, models=_models("n"))
        await chosen("m")
        await _says(made, 0, models=_models("m", first_token_ms=1500))
        await chosen("n")
        await _says(made, 0, models=_models("m", first_token_ms=100))
        await chosen("m")
        await _says(made, 0, kv_used="0.95")
        await chosen("n")
        assert (await _ask(made, "m")).accepted.model == "m", "who asks for one of them gets it"


async def test_limits_and_permissions_go_by_the_name_that_was_asked_for(
    valkey: Redis, valkey_server: ValkeyServer, config: Path
) -> None:
    config.write_text(
        config.read_text()
        + "\ntenancy: {tenants: {acme: {tier: gold, allowed_models: [gpt], models: {gpt: {requests_per_minute: 2}}}},"
        " anonymous: acme}"
    )
    async with mesh(valkey, valkey_server.url) as made:
        told = [await _ask(made, "gpt", tenant="acme") for _ in range(3)]
        assert [event.WhichOneof("event") for event in told] == ["accepted", "accepted", "error"]
        assert from_status(told[-1].error.status).name == "quota_exceeded"
        assert from_status((await _ask(made, "m", tenant="acme")).error.status).name == "permission_denied"
