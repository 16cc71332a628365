"""`streamway status`: what the leases and the processes behind them say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc.aio
from rich import box
from rich.console import Console
from rich.table import Table

from services.supervisor.commands.mesh import Mesh
from streamway.rpc import open_channel
from streamway.runtime.clock import SystemClock
from streamway.v1 import cache_pb2, cache_pb2_grpc, inference_pb2, inference_pb2_grpc
from streamway.valkey.connection import connect
from streamway.valkey.leases import list_leases

_ANSWER_S: Final = 2.0
_KINDS: Final = ("worker", "router", "cachenode")
Leases = dict[str, dict[str, str]]


@dataclass(slots=True)
class Picture:
    """The mesh at one moment: leases by kind, and the answers of those that were asked."""

    leases: dict[str, Leases] = field(default_factory=dict)
    loads: dict[str, inference_pb2.GetLoadResponse] = field(default_factory=dict)
    stats: dict[str, cache_pb2.StatsResponse] = field(default_factory=dict)


def show(valkey: str | None, options: Mapping[str, str | int | Path | None]) -> None:
    """Prints one table a kind. Raises StartError when Valkey does not answer."""
    mesh = Mesh(options)
    picture = asyncio.run(_look(mesh, valkey))
    console = Console(highlight=False)
    for table in (_workers(picture), _models(picture), _routers(picture), _caches(picture), _edges(mesh)):
        if table.row_count:
            console.print(table)
        else:
            console.print(f"no {table.title}", style="yellow")


async def _look(mesh: Mesh, valkey: str | None) -> Picture:
    picture = Picture()
    client = await connect(mesh.valkey_url(valkey), start_timeout_s=1.0)
    try:
        for kind in _KINDS:
            picture.leases[kind] = await list_leases(client, SystemClock(), kind)
    finally:
        await client.aclose()
    async with asyncio.TaskGroup() as group:
        for worker, lease in picture.leases["worker"].items():
            group.create_task(_ask_worker(mesh, worker, lease["address"], picture))
        for node, lease in picture.leases["cachenode"].items():
            group.create_task(_ask_cache(mesh, node, lease["address"], picture))
    return picture


async def _ask_worker(mesh: Mesh, worker: str, address: str, picture: Picture) -> None:
    async with open_channel(address, mesh.shared) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        try:
            picture.loads[worker] = await stub.GetLoad(
                inference_pb2.GetLoadRequest(), metadata=mesh.metadata, timeout=_ANSWER_S
            )
        except grpc.aio.AioRpcError:
            return  # shown as such: it has a lease and does not answer


async def _ask_cache(mesh: Mesh, node: str, address: str, picture: Picture) -> None:
    async with open_channel(address, mesh.shared) as channel:
        stub = cache_pb2_grpc.CacheServiceStub(channel)
        try:
            picture.stats[node] = await stub.Stats(cache_pb2.StatsRequest(), metadata=mesh.metadata, timeout=_ANSWER_S)
        except grpc.aio.AioRpcError:
            return


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table


def _workers(picture: Picture) -> Table:
    table = _table("workers", "worker", "state", "running", "queued", "room", "KV", "engine", "process", "address")
    for worker, lease in sorted(picture.leases["worker"].items()):
        load = picture.loads.get(worker)
        if load is None:
            table.add_row(worker, "no answer", *([""] * 4), lease.get("engine", ""), "", lease["address"])
            continue
        state = "draining" if load.draining else "ready" if load.engine.healthy else "engine is down"
        kv_used = f"{load.kv_used:.0%}" if load.HasField("kv_used") else "?"
        numbers = (f"{load.running} of {load.limit or load.slots}", str(load.queued), str(load.window_free), kv_used)
        engine = (load.engine.kind, str(load.engine.pid or ""))
        table.add_row(worker, state, *numbers, *engine, lease["address"])
    return table


def _models(picture: Picture) -> Table:
    table = _table("models", "model", "workers", "slots", "context")
    served: dict[str, list[tuple[int, int]]] = {}
    for lease in picture.leases["worker"].values():
        for model in json.loads(lease.get("models") or "[]"):
            row = (int(lease.get("slots") or 0), int(model.get("context_tokens") or 0))
            served.setdefault(model["name"], []).append(row)
    for name, rows in sorted(served.items()):
        context = min(tokens for _, tokens in rows)
        slots = sum(count for count, _ in rows)
        table.add_row(name, str(len(rows)), str(slots), f"{context} tokens" if context else "unknown")
    return table


def _routers(picture: Picture) -> Table:
    table = _table("routers", "router", "state", "address")
    for router, lease in sorted(picture.leases["router"].items()):
        table.add_row(router, "draining" if lease.get("draining") == "1" else "ready", lease["address"])
    return table


def _caches(picture: Picture) -> Table:
    table = _table("caches", "cache", "state", "entries", "size", "hits", "address")
    for node, lease in sorted(picture.leases["cachenode"].items()):
        stats = picture.stats.get(node)
        if stats is None:
            table.add_row(node, "does not answer", "", "", "", lease["address"])
            continue
        asked = stats.hits + stats.misses
        hits = f"{stats.hits} of {asked}" if asked else "none asked"
        size = f"{stats.bytes / 2**20:.1f} of {stats.limit_bytes / 2**20:.0f} MiB"
        table.add_row(node, "ready", str(stats.entries), size, hits, lease["address"])
    return table


def _edges(mesh: Mesh) -> Table:
    """Edges hold no lease: those of this machine's mesh are known from its own file."""
    table = _table("edges of this machine", "edge", "process", "url")
    for row in mesh.processes:
        if row["name"].startswith("edge-"):
            table.add_row(row["name"], str(row["pid"]), f"http://{row['address']}")
    return table
