"""The server every service uses, through real channels: errors, authentication, health, reflection, limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest
from google.rpc import status_pb2
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from pydantic import SecretStr
from structlog.testing import capture_logs

from streamway.auth import hash_key
from streamway.config import SharedSettings
from streamway.errors import EngineRejected, InvalidArgument, QueueFull, StreamwayError, from_rpc_error
from streamway.rpc import MeshServer, MountedService, caller, mesh_metadata, open_channel, own_call
from streamway.runtime.process import StartError
from streamway.telemetry.context import begin
from streamway.v1 import router_pb2, router_pb2_grpc
from tests.support.proxy import proxy_to

NAME = "streamway.v1.RouterService"


class Router(router_pb2_grpc.RouterServiceServicer):
    """Answers with who called, or fails as told."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.streams = 0

    async def ListModels(self, request, context):
        if self.error:
            raise self.error
        who = caller()
        return router_pb2.ListModelsResponse(models=[router_pb2.Model(name=who.tenant, workers=int(who.mesh))])

    async def Generate(self, request, context):
        yield router_pb2.GenerateResponse()
        if self.error:
            raise self.error

    async def Connect(self, request_iterator, context):
        self.streams += 1
        try:
            async for _ in request_iterator:
                if self.error:
                    raise self.error
                yield router_pb2.ConnectResponse()
        finally:
            self.streams -= 1


@asynccontextmanager
async def serving(servicer: Router, shared: SharedSettings, host: str = "127.0.0.1") -> AsyncIterator[MeshServer]:
    mounted = MountedService(NAME, servicer, router_pb2_grpc.add_RouterServiceServicer_to_server)
    server = MeshServer(host, 0, shared, [mounted])
    await server.start()
    await server.serving(True)
    try:
        yield server
    finally:
        await server.stop(0)


@asynccontextmanager
async def client(servicer: Router, shared: SharedSettings | None = None) -> AsyncIterator[grpc.aio.Channel]:
    shared = shared or SharedSettings()
    async with serving(servicer, shared) as server, open_channel(server.address, shared) as channel:
        yield channel


async def test_a_serialised_method_sends_its_bytes_as_they_are_and_fails_as_others_do() -> None:
    class Serialised(Router):
        async def Connect(self, request_iterator, context):
            async for request in request_iterator:
                if not request.commands:
                    raise InvalidArgument("commands", "is empty")
                yield b""
                yield router_pb2.ConnectResponse(events=[{"position": 7}]).SerializeToString()

    add = router_pb2_grpc.add_RouterServiceServicer_to_server
    server = MeshServer("127.0.0.1", 0, SharedSettings(), [MountedService(NAME, Serialised(), add, ("Connect",))])
    await server.start()
    try:
        async with open_channel(server.address, SharedSettings()) as channel:
            stub = router_pb2_grpc.RouterServiceStub(channel)
            assert (await stub.ListModels(router_pb2.ListModelsRequest())).models
            async with own_call(stub.Connect()) as call:
                await call.write(router_pb2.ConnectRequest(commands=[{}]))
                assert (await call.read()) == router_pb2.ConnectResponse()
                assert (await call.read()).events[0].position == 7
                await call.write(router_pb2.ConnectRequest())
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call.read()
                assert from_rpc_error(caught.value).name == "invalid_argument"
    finally:
        await server.stop(0)


async def test_the_first_call_to_a_peer_that_takes_three_tenths_of_a_second_to_answer_gets_through() -> None:
    """A busy machine, or one far away: the connection waits for the peer's first frame."""
    shared = SharedSettings()
    async with serving(Router(), shared) as server, proxy_to(f"http://{server.address}") as proxy:
        proxy.delay_s = 0.3
        async with open_channel(proxy.url.removeprefix("http://"), shared) as channel:
            stub = router_pb2_grpc.RouterServiceStub(channel)
            assert (await stub.ListModels(router_pb2.ListModelsRequest())).models


def keys_file(folder: Path) -> Path:
    path = folder / "keys.yaml"
    path.write_text(f"keys: [{{hash: {hash_key('good')}, tenant: acme}}]", encoding="utf-8")
    return path


async def refusal(call) -> StreamwayError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


@pytest.mark.parametrize(
    "error", [InvalidArgument("n", "must be 1 … 16"), QueueFull("m", 2.0), EngineRejected("nein ✗", 400)]
)
async def test_a_refusal_arrives_as_the_same_exception_on_every_kind_of_call(error: StreamwayError) -> None:
    servicer = Router()
    servicer.error = error
    async with client(servicer) as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        unary = await refusal(stub.ListModels(router_pb2.ListModelsRequest()))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async with own_call(stub.Generate(router_pb2.GenerateRequest())) as call:
                async for _ in call:
                    pass
        streamed = from_rpc_error(caught.value)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async with own_call(stub.Connect()) as call:
                await call.write(router_pb2.ConnectRequest())
                await call.read()
        both = from_rpc_error(caught.value)
    for back in (unary, streamed, both):
        assert (type(back), back.message, back.retry_after_s) == (type(error), error.message, error.retry_after_s)


@pytest.mark.parametrize("field", ["n", "ü" * 3000])
async def test_a_refusal_longer_than_trailers_may_be_still_arrives_as_itself(field: str) -> None:
    servicer = Router()
    servicer.error = InvalidArgument(field, "✗" * 50_000)
    async with client(servicer) as channel:
        back = await refusal(router_pb2_grpc.RouterServiceStub(channel).ListModels(router_pb2.ListModelsRequest()))
    assert isinstance(back, InvalidArgument)
    assert len(back.message.encode()) <= 1000


async def test_an_unknown_exception_is_internal_with_an_id_and_nothing_of_its_text() -> None:
    servicer = Router()
    servicer.error = RuntimeError("password=hunter2")
    async with client(servicer) as channel:
        with capture_logs() as logs, pytest.raises(grpc.aio.AioRpcError) as caught:
            await router_pb2_grpc.RouterServiceStub(channel).ListModels(router_pb2.ListModelsRequest())
    error = caught.value
    assert error.code() is grpc.StatusCode.INTERNAL
    told = f"{error.details()} {error.trailing_metadata()}"
    assert "hunter2" not in told
    back = from_rpc_error(error)
    (entry,) = [entry for entry in logs if entry["event"] == "rpc_failed"]
    assert back.metadata["request_id"] == entry["request_id"]
    assert "hunter2" in str(entry["exc_info"])


async def test_a_status_has_one_error_info() -> None:
    servicer = Router()
    servicer.error = QueueFull("m", 2.0)
    async with client(servicer) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await router_pb2_grpc.RouterServiceStub(channel).ListModels(router_pb2.ListModelsRequest())
    (rich,) = [value for key, value in caught.value.trailing_metadata() if key == "grpc-status-details-bin"]
    kinds = [detail.type_url for detail in status_pb2.Status.FromString(rich).details]
    assert kinds == ["type.googleapis.com/google.rpc.ErrorInfo", "type.googleapis.com/google.rpc.RetryInfo"]


TOKEN = SecretStr("mesh-secret")
MATRIX = [
    # configured (token, keys), presented metadata, expected (tenant, mesh) or None for a refusal
    (False, False, (), ("anonymous", 1)),
    (False, False, (("authorization", "Bearer whatever"),), ("anonymous", 1)),
    (True, False, (), None),
    (True, False, (("x-streamway-mesh-token", "mesh-secret"),), ("anonymous", 1)),
    (True, False, (("x-streamway-mesh-token", "wrong"),), None),
    (True, False, (("authorization", "Bearer good"),), None),
    (False, True, (), None),
    (False, True, (("authorization", "Bearer good"),), ("acme", 0)),
    (False, True, (("authorization", "bearer  good"),), ("acme", 0)),
    (False, True, (("authorization", "Bearer bad"),), None),
    (False, True, (("authorization", "Basic good"),), None),
    (False, True, (("authorization", "good"),), None),
    (False, True, (("x-streamway-mesh-token", "guess"),), None),
    (True, True, (), None),
    (True, True, (("authorization", "Bearer good"),), ("acme", 0)),
    (True, True, (("x-streamway-mesh-token", "mesh-secret"),), ("anonymous", 1)),
    (True, True, (("x-streamway-mesh-token", "wrong"), ("authorization", "Bearer good")), None),
]


@pytest.mark.parametrize(("token", "keys", "metadata", "expected"), MATRIX)
async def test_who_gets_in_and_as_whom(tmp_path, token, keys, metadata, expected) -> None:
    shared = SharedSettings(mesh_token=TOKEN if token else None, api_keys_file=keys_file(tmp_path) if keys else None)
    async with client(Router(), shared) as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        call = stub.ListModels(router_pb2.ListModelsRequest(), metadata=metadata)
        if expected is None:
            refused = await refusal(call)
            assert (refused.name, refused.row.http) == ("unauthenticated", 401)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in stub.Generate(router_pb2.GenerateRequest(), metadata=metadata):
                    pass
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        else:
            (model,) = (await call).models
            assert (model.name, model.workers) == expected


async def test_our_own_calls_carry_the_token_and_the_trace() -> None:
    shared = SharedSettings(mesh_token=TOKEN)
    context = begin()
    metadata = mesh_metadata(shared, context)
    assert dict(metadata) == {"x-streamway-mesh-token": "mesh-secret", "traceparent": context.traceparent}
    async with client(Router(), shared) as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        answer = await stub.ListModels(router_pb2.ListModelsRequest(), metadata=metadata)
        assert answer.models[0].workers == 1


async def test_health_and_reflection_answer_without_a_secret_and_channelz_does_not() -> None:
    shared = SharedSettings(mesh_token=TOKEN)
    async with client(Router(), shared) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", NAME):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        async with own_call(reflection.ServerReflectionInfo()) as call:
            await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
            names = {service.name for service in (await call.read()).list_services_response.service}
        assert {NAME, "grpc.health.v1.Health"} <= names
        channelz = channelz_pb2_grpc.ChannelzStub(channel)
        assert (await refusal(channelz.GetServers(channelz_pb2.GetServersRequest()))).name == "unauthenticated"
        answer = await channelz.GetServers(channelz_pb2.GetServersRequest(), metadata=mesh_metadata(shared))
        assert answer.server


async def test_health_says_not_serving_until_told_and_again_in_a_drain() -> None:
    shared = SharedSettings()
    async with serving(Router(), shared) as server, open_channel(server.address, shared) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for yes in (False, True, False):
            await server.serving(yes)
            answer = await health.Check(health_pb2.HealthCheckRequest(service=NAME))
            assert (answer.status == health_pb2.HealthCheckResponse.SERVING) is yes


async def test_own_call_cancels_what_is_left_early() -> None:
    servicer = Router()
    async with client(servicer) as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        async with own_call(stub.Connect()) as call:
            await call.write(router_pb2.ConnectRequest())
            await call.read()
            assert servicer.streams == 1
        for _ in range(1000):
            if not servicer.streams:
                break
            await asyncio.sleep(0.02)
        assert servicer.streams == 0


async def test_k1_a_message_over_the_limit_is_refused_by_name_and_one_under_it_passes() -> None:
    shared = SharedSettings(max_message_bytes=64 * 1024)
    async with client(Router(), shared) as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        request = router_pb2.GenerateRequest()
        request.request.openai_body = b"x" * (60 * 1024)
        assert [answer async for answer in stub.Generate(request)]
        request.request.openai_body = b"x" * (70 * 1024)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in stub.Generate(request):
                pass
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    error = from_rpc_error(caught.value)
    assert error.row.http == 413
    assert str(64 * 1024) in error.message


async def test_a_taken_port_stops_the_start() -> None:
    shared = SharedSettings()
    async with serving(Router(), shared) as first:
        port = int(first.address.rpartition(":")[2])
        second = MeshServer("127.0.0.1", port, shared, [])
        with pytest.raises(StartError, match="is not free"):
            await second.start()


def test_beyond_loopback_without_secrets_no_server_is_made() -> None:
    with pytest.raises(StartError, match="reachable from outside"):
        MeshServer("0.0.0.0", 0, SharedSettings(), [])


async def test_it_listens_on_ipv6_loopback() -> None:
    try:
        async with serving(Router(), SharedSettings(), "::1") as server:
            assert server.address.startswith("[::1]:")
    except StartError:
        pytest.skip("this machine has no IPv6 loopback")


async def test_c3_an_idle_stream_outlives_many_pings(monkeypatch) -> None:
    """Scaled: pings each 0.1 s against a server that takes them 0.05 s apart, for 2 s; the literal run is ten minutes."""
    monkeypatch.setattr("streamway.rpc.options.CLIENT_KEEPALIVE_MS", 100)
    monkeypatch.setattr("streamway.rpc.options.SERVER_LEAST_PING_INTERVAL_MS", 50)
    async with client(Router()) as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        async with own_call(stub.Connect()) as call:
            await call.write(router_pb2.ConnectRequest())
            await call.read()
            await asyncio.sleep(2)
            await call.write(router_pb2.ConnectRequest())
            assert await call.read() is not grpc.aio.EOF
