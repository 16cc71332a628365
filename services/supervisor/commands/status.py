"""`streamway status`: what the leases and the processes behind them say."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from rich import box
from rich.table import Table

from services.supervisor.commands.mesh import Mesh
from services.supervisor.io.looking import Looker, Picture
from services.supervisor.io.printing import table_console
from streamway.v1 import inference_pb2


def show(valkey: str | None, options: Mapping[str, str | int | Path | None]) -> None:
    """Prints one table a kind. Raises StartError when Valkey does not answer."""
    mesh = Mesh(options)
    picture = asyncio.run(_look(mesh, valkey))
    console = table_console()
    for table in (_workers(picture), _models(picture), _routers(picture), _caches(picture), _edges(mesh)):
        if table.row_count:
            console.print(table)
        else:
            console.print(f"no {table.title}", style="yellow")


async def _look(mesh: Mesh, valkey: str | None) -> Picture:
    async with Looker(mesh.valkey_url(valkey), mesh.shared, mesh.metadata) as looker:
        return await looker.look()


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
        state = _state(load)
        kv_used = f"{load.kv_used:.0%}" if load.HasField("kv_used") else "?"
        numbers = (f"{load.running} of {load.limit or load.slots}", str(load.queued), str(load.window_free), kv_used)
        engine = (load.engine.kind, str(load.engine.pid or ""))
        table.add_row(worker, state, *numbers, *engine, lease["address"])
    return table


def _state(load: inference_pb2.GetLoadResponse) -> str:
    if load.draining:
        return "draining"
    return "exchanges weights" if load.reloading else "ready" if load.engine.healthy else "engine is down"


def _models(picture: Picture) -> Table:
    table = _table("models", "model", "workers", "slots", "context")
    for name, rows in sorted(picture.models().items()):
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
