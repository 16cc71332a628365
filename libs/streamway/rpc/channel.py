"""Channels to other services, and what each call carries."""

from __future__ import annotations

from typing import Final

import grpc.aio

from streamway.config.shared import SharedSettings
from streamway.rpc.options import client_options
from streamway.telemetry.context import RequestContext

MESH_TOKEN_KEY: Final = "x-streamway-mesh-token"  # noqa: S105 — the name of the header, not its value


def open_channel(address: str, shared: SharedSettings) -> grpc.aio.Channel:
    """A channel to "host:port" or "unix:path". Connects on first use; the caller closes it."""
    return grpc.aio.insecure_channel(address, options=client_options(shared.max_message_bytes))


def mesh_metadata(shared: SharedSettings, context: RequestContext | None = None) -> grpc.aio.Metadata:
    """Metadata for a call to another service: the mesh token, and the trace of the request it belongs to."""
    pairs: list[tuple[str, str]] = []
    if shared.mesh_token is not None:
        pairs.append((MESH_TOKEN_KEY, shared.mesh_token.get_secret_value()))
    if context is not None:
        pairs.append(("traceparent", context.traceparent))
    return grpc.aio.Metadata(*pairs)
