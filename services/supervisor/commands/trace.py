"""`streamway trace`: where one generation was and when, asked from the processes of the running mesh. No collector is needed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
from rich import box
from rich.console import Console
from rich.table import Table

from services.supervisor.commands.mesh import Mesh
from services.supervisor.core.route import Step, steps
from streamway.errors import GenerationNotFound
from streamway.journal.entries import Entry, Kind
from streamway.runtime.address import host_port
from streamway.runtime.clock import SystemClock
from streamway.runtime.shapes import is_generation_id
from streamway.valkey import keys
from streamway.valkey.connection import Valkey, connect
from streamway.valkey.leases import list_leases

Options = Mapping[str, str | int | Path | None]
_ANSWER_S: Final = 2.0
_MOST_ENTRIES: Final = 10_000
_KINDS: Final = ("worker", "router", "cachenode", "edge")
_ANYWHERE: Final = ("0.0.0.0", "::")
_RECORD: Final = ("state", "model", "tenant", "worker", "durability", "follows")


@dataclass(slots=True)
class Found:
    """What the store and the processes say of one generation."""

    generation: str
    record: dict[str, str] = field(default_factory=dict)
    # Engine calls of its response channel: epoch, worker, first position.
    calls: list[tuple[int, str, int]] = field(default_factory=list)
    entries: int = 0
    ended: bool = False
    rows: list[dict[str, Any]] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)


def show(generation: str, valkey: str | None, operations: Sequence[str], options: Options, *, as_json: bool) -> None:
    """Prints its hops and times. Raises StartError when Valkey does not answer, and GenerationNotFound where nobody knows it."""
    if not is_generation_id(generation):
        raise GenerationNotFound(generation)
    found = asyncio.run(_look(Mesh(options), generation, valkey, operations))
    if not found.rows and not found.record:
        raise GenerationNotFound(generation)
    if as_json:
        print(json.dumps({"generation": generation, "record": found.record, "hops": found.rows}, indent=2))
        return
    console = Console(highlight=False)
    _print_head(console, found)
    console.print(_table(steps(found.rows)))
    for address in found.silent:
        console.print(f"{address} does not answer: what it knows is missing", style="yellow")


async def _look(mesh: Mesh, generation: str, valkey: str | None, operations: Sequence[str]) -> Found:
    found = Found(generation)
    client = await connect(mesh.valkey_url(valkey), start_timeout_s=1.0)
    try:
        addresses = await _addresses(client, mesh, operations)
        await _read_store(client, found)
    finally:
        await client.aclose()
    timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
    async with aiohttp.ClientSession(timeout=timeout) as session, asyncio.TaskGroup() as group:
        for address in addresses:
            group.create_task(_ask(session, address, found))
    return found


async def _addresses(client: Valkey, mesh: Mesh, operations: Sequence[str]) -> list[str]:
    """Operations ports: given, of this machine's mesh, and of whoever holds a lease."""
    found = dict.fromkeys(operations)
    found |= dict.fromkeys(str(row["operations"]) for row in mesh.processes if row.get("operations"))
    for kind in _KINDS:
        for lease in (await list_leases(client, SystemClock(), kind)).values():
            host = lease["address"].rpartition(":")[0].strip("[]")
            # Where an edge listens everywhere, its lease does not say where that is.
            if (port := lease.get("operations_port")) and host not in _ANYWHERE:
                found[host_port(host, int(port))] = None
    return list(found)


async def _read_store(client: Valkey, found: Found) -> None:
    row: Any = client.hmget(keys.generation(found.generation), list(_RECORD))
    values = await row
    found.record = {name: value.decode() for name, value in zip(_RECORD, values, strict=True) if value}
    channel = keys.response(found.record.get("follows") or found.generation)
    reply: Any = client.xrange(channel, count=_MOST_ENTRIES)
    for id_, fields in await reply:
        entry = Entry.parse(id_, [part for pair in fields.items() for part in pair])
        found.entries += 1
        found.ended = entry.kind is Kind.END
        if entry.begin is not None:
            found.calls.append((entry.epoch, entry.begin.worker, entry.last))


async def _ask(session: aiohttp.ClientSession, address: str, found: Found) -> None:
    try:
        async with session.get(f"http://{address}/debug/generations/{found.generation}") as answer:
            answer.raise_for_status()
            told = (await answer.json())["hops"]
            # One process may be known under two addresses.
            known = {row["span"] for row in found.rows}
            found.rows += [row for row in told if row["span"] not in known]
    except (aiohttp.ClientError, TimeoutError):
        found.silent.append(address)


def _print_head(console: Console, found: Found) -> None:
    record = found.record
    state = record.get("state", "no record")
    parts = [
        f"[bold]{found.generation}[/bold]",
        state,
        record.get("model", ""),
        f"tenant {record.get('tenant') or 'anonymous'}",
    ]
    if found.rows:
        parts.append(f"trace {found.rows[0]['trace']}")
    console.print("  ".join(part for part in parts if part), soft_wrap=True)
    if found.entries:
        calls = (
            ", ".join(f"{worker} from position {position}" for _, worker, position in found.calls) or "no engine call"
        )
        end = "ended" if found.ended else "open"
        console.print(f"channel: {found.entries} entries, {end}; {calls}", soft_wrap=True)


def _table(rows: Sequence[Step]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column, justify in (("ms", "right"), ("took", "right"), ("process", "left"), ("what", "left"), ("", "left")):
        table.add_column(column, justify=justify, no_wrap=column != "")  # type: ignore[arg-type]
    for row in rows:
        took = "" if row.took_ms is None else f"{row.took_ms:.1f}"
        what = "  " * row.depth + ("· " if row.moment else "") + row.what
        details = ", ".join(part for part in (row.details, row.outcome) if part)
        style = "dim" if row.moment else None
        table.add_row(f"{row.at_ms:.1f}", took, row.process, what, details, style=style)
    return table
