"""`streamway chaos`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from services.supervisor.chaos.mesh import ChaosMesh, NotWhole, own_mesh
from services.supervisor.chaos.runner import Runner
from services.supervisor.commands.arguments import given
from services.supervisor.core.rounds import UNDISTURBED, Round
from services.supervisor.core.verdict import Row
from services.supervisor.settings import ClientSettings
from streamway.config import SharedSettings, load
from streamway.runtime.process import StartError

_COLUMNS = (
    "deed",
    "process",
    "phase",
    "surface",
    "streams",
    "hit",
    "lost",
    "repeated",
    "failed",
    "next token s",
    "note",
)


def torment(
    rounds: Sequence[Round], *, running: bool, json_file: Path | None, options: Mapping[str, str | int | Path | None]
) -> None:
    """Runs the rounds and prints the table; exit code 1 when a stream lost or repeated something, or failed.

    A deed that is not possible here is left out and says so. Raises StartError when there is no mesh to run them on.
    """
    if not sys.platform.startswith("linux"):
        raise StartError("chaos needs Linux: it finds processes and connections in /proc")
    # A table that is piped into a file is not cut to the width of a terminal that is not there.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
    try:
        rows = asyncio.run(_run(console, rounds, running=running, options=options))
    except KeyboardInterrupt:
        sys.exit(130)
    console.print(_table(rows))
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")
    dirty = [row for row in rows if not row.clean]
    streams = sum(row.streams for row in rows)
    if dirty:
        console.print(f"{len(dirty)} of {len(rows)} rounds lost, repeated or failed something", style="red")
        sys.exit(1)
    console.print(f"{streams} streams in {len(rows)} rounds: nothing lost, nothing repeated", style="green")


async def _run(
    console: Console, rounds: Sequence[Round], *, running: bool, options: Mapping[str, str | int | Path | None]
) -> list[Row]:
    async with _mesh(console, running=running, options=options) as mesh:
        runner = Runner(mesh, await _simulated_model(mesh))
        rows: list[Row] = []
        for number, round_ in enumerate((UNDISTURBED, *rounds)):
            try:
                row = await runner.run(round_)
            except NotWhole as problem:
                console.print(
                    f"{round_.deed} {round_.victim}, {round_.phase}, {round_.surface}: {problem}", style="red"
                )
                console.print(_table(rows))
                sys.exit(1)
            rows.append(row)
            _progress(console, row, number, len(rounds))
            if number == 0 and not row.clean:
                raise StartError(f"this mesh loses streams with nothing done to it: {row.note}")
        return rows


@asynccontextmanager
async def _mesh(
    console: Console, *, running: bool, options: Mapping[str, str | int | Path | None]
) -> AsyncIterator[ChaosMesh]:
    if running:
        settings, _ = load(ClientSettings, SharedSettings, arguments=given(options))
        key = settings.api_key.get_secret_value() if settings.api_key is not None else ""
        yield ChaosMesh(settings.data_dir.expanduser(), {"Authorization": f"Bearer {key}"} if key else {})
        return
    console.print("starting a mesh: 3 workers with the simulated engine, 2 routers, 2 edges …", style="dim")
    async with own_mesh() as mesh:
        yield mesh


async def _simulated_model(mesh: ChaosMesh) -> str:
    """The model to ask. Answers are compared as a whole with what they had to be, which only the simulated engine can say."""
    for name, engine in await mesh.models():
        if engine == "simulated":
            return name
    raise StartError("this mesh has no worker with the simulated engine; leave --running out for one that has")


def _progress(console: Console, row: Row, number: int, rounds: int) -> None:
    what = "nothing is done" if row.deed == "nothing" else f"{row.deed} {row.target or row.victim}, {row.phase}"
    verdict = (
        "[green]ok[/green]"
        if row.clean
        else f"[red]{row.lost} lost, {row.repeated} repeated, {row.failed} failed[/red]"
    )
    slowest = "" if row.next_token_most_s is None else f", next token after {row.next_token_most_s:.2f} s at most"
    where = "all surfaces" if row.surface == "all" else row.surface
    console.print(f"{number:>3}/{rounds} {what}, {where}: {row.hit} of {row.live} hit{slowest}: {verdict}")


def _table(rows: Sequence[Row]) -> Table:
    table = Table(title="chaos", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in _COLUMNS:
        table.add_column(column, justify="right" if column in _COLUMNS[4:10] else "left", no_wrap=column != "note")
    for row in rows:
        next_token = (
            "" if row.next_token_median_s is None else f"{row.next_token_median_s:.2f} / {row.next_token_most_s:.2f}"
        )
        mode = "" if row.durability == "relaxed" else f", {row.durability}"
        table.add_row(
            row.deed,
            row.target or ("" if row.deed == "nothing" else row.victim),
            row.phase,
            f"{row.surface}{mode}",
            str(row.streams),
            str(row.hit),
            str(row.lost),
            str(row.repeated),
            str(row.failed),
            next_token,
            row.note,
            style="" if row.clean else "red",
        )
    return table
