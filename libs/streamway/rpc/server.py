"""The gRPC server of a service: health, reflection and channelz beside its own RPCs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc.aio
from grpc_channelz.v1 import channelz
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from streamway.auth import Credentials, watch_tenancy
from streamway.config.shared import SharedSettings
from streamway.rpc.interceptors import AuthInterceptor, ErrorInterceptor
from streamway.rpc.options import server_options
from streamway.rpc.serialised import SerialisedInterceptor
from streamway.runtime.address import host_port
from streamway.runtime.start import StartError
from streamway.tenancy.watching import TenancyWatch


@dataclass(frozen=True)
class MountedService:
    """One servicer and how it is added: `add` is the generated `add_…Servicer_to_server`, `name` the full proto name.

    Methods in `serialised` stream answers that are bytes already.
    """

    name: str
    servicer: Any
    add: Callable[[Any, grpc.aio.Server], None]
    serialised: tuple[str, ...] = ()


class MeshServer:
    """Listens on `host:port` and serves `services`. Interceptors run in the order telemetry, errors, authentication.

    `port` 0 takes a free one; `address` tells which after `start`. Callers are known by `tenants`, which whoever made it
    keeps fresh; without it by what the files say now. Raises StartError when `host` may not be listened on.
    """

    def __init__(
        self,
        host: str,
        port: int,
        shared: SharedSettings,
        services: Sequence[MountedService],
        *,
        telemetry: Sequence[grpc.aio.ServerInterceptor] = (),
        tenants: TenancyWatch | None = None,
    ) -> None:
        credentials = Credentials(tenants or watch_tenancy(host, shared))
        token = shared.mesh_token.get_secret_value() if shared.mesh_token else None
        self._host = host
        self._port = port
        self._services = services
        serialised = [f"/{service.name}/{method}" for service in services for method in service.serialised]
        self._server = grpc.aio.server(
            interceptors=[
                *telemetry,
                ErrorInterceptor(),
                AuthInterceptor(token, credentials),
                *([SerialisedInterceptor(serialised)] if serialised else []),
            ],
            options=server_options(shared.max_message_bytes),
        )
        self._health = health.aio.HealthServicer()
        for service in services:
            service.add(service.servicer, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        channelz.add_channelz_servicer(self._server)
        names = [service.name for service in services]
        reflection.enable_server_reflection((*names, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)

    @property
    def address(self) -> str:
        """Where it listens, "host:port"."""
        return host_port(self._host, self._port)

    async def start(self) -> None:
        """Listens, but reports NOT_SERVING until `serving(True)`. Raises StartError when the port is taken."""
        await self.serving(False)
        try:
            self._port = self._server.add_insecure_port(self.address)
        except RuntimeError:
            raise StartError(
                f"gRPC port {self.address} is not free; stop what listens there or set another port"
            ) from None
        await self._server.start()

    async def serving(self, yes: bool) -> None:
        """Sets the health status of the process ("") and of each service."""
        status = health_pb2.HealthCheckResponse.SERVING if yes else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", *(service.name for service in self._services)):
            await self._health.set(name, status)

    async def stop(self, grace_s: float) -> None:
        """Refuses new calls, waits up to `grace_s` for running ones, then cancels them."""
        await self._server.stop(grace_s)

    async def wait(self) -> None:
        """Returns when the server has stopped. Shielded: cancelling grpc.aio's own wait would break `stop`."""
        await asyncio.shield(self._server.wait_for_termination())
