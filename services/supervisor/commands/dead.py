"""`streamway dead`: tasks that brought down too many workers, and trying them again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from services.supervisor.commands.mesh import Mesh
from streamway.errors import InvalidArgument
from streamway.lanes.dead import DeadTask, dead_models, list_dead, retry_dead
from streamway.valkey.connection import Valkey, connect

Options = Mapping[str, str | int | Path | None]


def show(model: str | None, valkey: str | None, options: Options) -> None:
    """Prints how many each model has, or the tasks of one. Raises StartError when Valkey does not answer."""
    console = Console(highlight=False)
    if model is None:
        _print_models(console, asyncio.run(_count(Mesh(options), valkey)))
    else:
        _print_tasks(console, model, asyncio.run(_list(Mesh(options), valkey, model)))


def retry(model: str, generation: str | None, valkey: str | None, options: Options) -> None:
    """Gives one task, or all of a model, another try. Raises StartError, and InvalidArgument where there is no such task."""
    console = Console(highlight=False)
    for task, done in asyncio.run(_retry(Mesh(options), valkey, model, generation)):
        outcome = "waits in the pool" if done else "[yellow]its request is not kept any more[/yellow]"
        console.print(f"{task.generation}  {outcome}")


async def _count(mesh: Mesh, valkey: str | None) -> dict[str, int]:
    client = await _connect(mesh, valkey)
    try:
        return await dead_models(client)
    finally:
        await client.aclose()


async def _list(mesh: Mesh, valkey: str | None, model: str) -> list[DeadTask]:
    client = await _connect(mesh, valkey)
    try:
        return await list_dead(client, model)
    finally:
        await client.aclose()


async def _retry(mesh: Mesh, valkey: str | None, model: str, generation: str | None) -> list[tuple[DeadTask, bool]]:
    client = await _connect(mesh, valkey)
    try:
        tasks = await list_dead(client, model)
        if generation is not None:
            tasks = [task for task in tasks if task.generation == generation]
            if not tasks:
                raise InvalidArgument("generation", f"the dead lane of {model!r} has none of this id")
        return [(task, await retry_dead(client, model, task)) for task in tasks]
    finally:
        await client.aclose()


async def _connect(mesh: Mesh, valkey: str | None) -> Valkey:
    return await connect(mesh.valkey_url(valkey), start_timeout_s=1.0)


def _print_models(console: Console, models: Mapping[str, int]) -> None:
    if not models:
        console.print("no dead tasks")
        return
    table = Table(title="dead tasks", box=box.SIMPLE, title_justify="left")
    table.add_column("model")
    table.add_column("tasks", justify="right")
    for model, tasks in models.items():
        table.add_row(model, str(tasks))
    console.print(table)


def _print_tasks(console: Console, model: str, tasks: list[DeadTask]) -> None:
    if not tasks:
        console.print(f"no dead tasks of {model}")
        return
    table = Table(title=f"dead tasks of {model}", box=box.SIMPLE, title_justify="left")
    for name in ("generation", "tenant", "died on", "at position", "request"):
        table.add_column(name)
    for task in tasks:
        workers = " → ".join(str(call["worker"]) for call in task.calls)
        position = str(task.calls[-1]["position"]) if task.calls else ""
        table.add_row(task.generation, task.tenant, workers, position, "kept" if task.kept else "gone")
    console.print(table)
