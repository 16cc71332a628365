"""What the adapters say about their engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import grpc.aio

from streamway.config import SharedSettings
from streamway.rpc import mesh_metadata, open_channel
from streamway.v1 import inference_pb2, inference_pb2_grpc

_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """An engine that its adapter started."""

    pid: int
    address: str


class Engines:
    """Asks adapters by `GetLoad`; holds one channel for each. Must be made after the processes it asks."""

    def __init__(self, adapters: Mapping[int, str], shared: SharedSettings) -> None:
        self._metadata: Any = mesh_metadata(shared)
        self._channels = {index: open_channel(address, shared) for index, address in adapters.items()}
        self._known: dict[int, EngineProcess] = {}

    @property
    def known(self) -> Mapping[int, EngineProcess]:
        """The engines by the index of their adapter, as of the last `refresh`."""
        return self._known

    async def refresh(self) -> bool:
        """Asks all; True when something changed. An adapter that does not answer keeps its last entry."""
        before = dict(self._known)
        for index, channel in self._channels.items():
            stub = inference_pb2_grpc.InferenceServiceStub(channel)
            try:
                load = await stub.GetLoad(inference_pb2.GetLoadRequest(), timeout=_TIMEOUT_S, metadata=self._metadata)
            except grpc.aio.AioRpcError:
                continue
            if load.engine.pid:
                self._known[index] = EngineProcess(load.engine.pid, load.engine.address)
            else:
                self._known.pop(index, None)
        return self._known != before

    async def close(self) -> None:
        """Closes the channels."""
        for channel in self._channels.values():
            await channel.close()
