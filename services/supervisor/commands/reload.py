"""`streamway reload`: workers exchange their weights, one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import grpc.aio
from rich.console import Console

from services.supervisor.commands.mesh import Mesh
from services.supervisor.core.reloading import chosen
from streamway.errors import from_rpc_error
from streamway.rpc import open_channel
from streamway.runtime.clock import SystemClock
from streamway.runtime.process import StartError
from streamway.v1 import inference_pb2, inference_pb2_grpc
from streamway.valkey.connection import connect
from streamway.valkey.leases import list_leases

# An old answer may be long.
_LONGEST_S: Final = 3600.0


def reload(workers: Sequence[str], *, valkey: str | None, options: Mapping[str, str | int | Path | None]) -> None:
    """Asks each worker, or those named, and prints what each did. The first failure is raised, and the rest keep their weights:
    StreamwayError with the worker's own words; StartError when there is none to ask."""
    mesh, console = Mesh(options), Console(highlight=False)
    asyncio.run(_reload(mesh, valkey, workers, console))


async def _reload(mesh: Mesh, valkey: str | None, wanted: Sequence[str], console: Console) -> None:
    client = await connect(mesh.valkey_url(valkey), start_timeout_s=1.0)
    try:
        leases = await list_leases(client, SystemClock(), "worker")
    finally:
        await client.aclose()
    asked, problem = chosen(leases, wanted)
    if problem:
        raise StartError(problem)
    for worker in asked:
        done = await _ask(mesh, leases[worker]["address"])
        loaded = f"loaded in {done.load_ms / 1000:.1f} s"
        how = f"after the old ones had gone ({done.why_not_beside})" if done.why_not_beside else "beside the old ones"
        console.print(
            f"{worker}  {done.file} {loaded} {how}; all done after {done.took_ms / 1000:.1f} s", soft_wrap=True
        )


async def _ask(mesh: Mesh, address: str) -> inference_pb2.ReloadResponse:
    channel = open_channel(address, mesh.shared)
    try:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        return await stub.Reload(inference_pb2.ReloadRequest(), metadata=mesh.metadata, timeout=_LONGEST_S)
    except grpc.aio.AioRpcError as problem:
        raise from_rpc_error(problem) from None
    finally:
        await channel.close()
