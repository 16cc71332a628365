"""Asking a worker whether it is there."""

from __future__ import annotations

from typing import Any

import grpc.aio

from streamway.config.shared import SharedSettings
from streamway.rpc import mesh_metadata, open_channel
from streamway.runtime.listening import listening
from streamway.v1 import inference_pb2, inference_pb2_grpc

_ANSWER_S = 1.0
# gRPC's own clock goes on while this loop is busy, so ours decides.
_CALL_S = 15.0


class Probe:
    """Asks with GetLoad on a connection of its own, since an old one may be broken without knowing."""

    def __init__(self, shared: SharedSettings) -> None:
        self._shared = shared
        self._metadata = mesh_metadata(shared)

    async def answers(self, address: str) -> bool:
        """Whether something that serves workers' calls answers within a second."""
        async with open_channel(address, self._shared) as channel:
            stub: Any = inference_pb2_grpc.InferenceServiceStub(channel)
            try:
                async with listening(_ANSWER_S):
                    await stub.GetLoad(inference_pb2.GetLoadRequest(), timeout=_CALL_S, metadata=self._metadata)
            except TimeoutError:
                return False
            except grpc.aio.AioRpcError as refused:
                return refused.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        return True
