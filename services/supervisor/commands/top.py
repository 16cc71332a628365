"""`streamway top`: workers, lanes and tokens a second, live."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from redis.exceptions import RedisError
from rich import box
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from services.supervisor.commands.mesh import Mesh
from services.supervisor.core.rates import Rates
from services.supervisor.io.looking import Looker, Picture
from services.supervisor.io.printing import table_console
from streamway.valkey.keys import CLASSES

# Of `--once`: between its two looks, from which the rates come.
_ONCE_S: Final = 1.0


def watch(
    valkey: str | None, every_s: float, options: Mapping[str, str | int | Path | None], *, once: bool = False
) -> None:
    """Shows tables until Ctrl-C; with `once` prints them once. Raises StartError when Valkey does not answer."""
    mesh = Mesh(options)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_watch(mesh, valkey, every_s, once=once))


async def _watch(mesh: Mesh, valkey: str | None, every_s: float, *, once: bool) -> None:
    console, rates = table_console(), Rates()
    async with Looker(mesh.valkey_url(valkey), mesh.shared, mesh.metadata) as looker:
        if once:
            tables(await looker.look(), rates)
            await asyncio.sleep(_ONCE_S)
            console.print(tables(await looker.look(lanes=True), rates))
            return
        with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
            while True:
                try:
                    shown = tables(await looker.look(lanes=True), rates)
                except RedisError as problem:
                    shown = Text(f"Valkey does not answer ({type(problem).__name__}); trying again", style="yellow")
                live.update(shown, refresh=True)
                await asyncio.sleep(every_s)


def tables(picture: Picture, rates: Rates) -> RenderableType:
    """What is shown of one look. `rates` remembers the looks before it."""
    counters = {worker: load.tokens_made for worker, load in picture.loads.items()}
    speeds = rates.look(picture.at, counters)
    pools = _pools(picture)
    return Group(_summary(picture, speeds), _workers(picture, speeds), *([pools] if pools.row_count else []))


def _summary(picture: Picture, speeds: Mapping[str, float | None]) -> Text:
    loads = picture.loads.values()
    known = [speed for speed in speeds.values() if speed is not None]
    hits = sum(stats.hits for stats in picture.stats.values())
    asked = hits + sum(stats.misses for stats in picture.stats.values())
    waiting = sum(sum(lane.values()) for lane in (*picture.lanes.values(), *picture.pools.values()))
    parts = [
        f"{len(picture.leases['worker'])} workers",
        f"{len(picture.leases['router'])} routers",
        f"{sum(load.running for load in loads)} running",
        f"{sum(load.subscriptions for load in loads)} read live",
        f"{waiting} tasks in lanes",
        f"{sum(known):.0f} tokens/s" if known else "no rate yet",
        *([f"cache {hits} of {asked} hits"] if picture.stats else []),
    ]
    return Text(" · ".join(parts), style="bold")


def _workers(picture: Picture, speeds: Mapping[str, float | None]) -> Table:
    table = _table("worker", "state", "running", "window", *CLASSES, "streams", "tokens/s", "KV")
    for worker in sorted(picture.leases["worker"]):
        lanes = picture.lanes.get(worker, {})
        counts = [str(lanes.get(class_, 0) or "·") for class_ in CLASSES]
        load = picture.loads.get(worker)
        if load is None:
            table.add_row(worker, "no answer", "", "", *counts, "", "", "", style="yellow")
            continue
        state = "draining" if load.draining else "ready" if load.engine.healthy else "engine is down"
        speed = speeds.get(worker)
        table.add_row(
            worker,
            state,
            f"{load.running} of {load.limit or load.slots}",
            f"{load.queued} + {load.window_free}",
            *counts,
            str(load.subscriptions),
            "" if speed is None else f"{speed:.0f}",
            f"{load.kv_used:.0%}" if load.HasField("kv_used") else "?",
            style="" if state == "ready" else "yellow",
        )
    table.caption = "window: waiting + room; gold … bulk: tasks in the worker's lanes, those that run among them"
    return table


def _pools(picture: Picture) -> Table:
    table = _table("pool of model", *CLASSES)
    for model, lanes in sorted(picture.pools.items()):
        if any(lanes.values()):
            table.add_row(model, *(str(lanes[class_] or "·") for class_ in CLASSES))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption_justify="left", caption_style="dim")
    for column in columns:
        table.add_column(column, no_wrap=True, justify="left" if column in (columns[0], "state") else "right")
    return table
