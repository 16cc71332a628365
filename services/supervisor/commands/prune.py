"""`streamway prune`: frees what nobody will ask for again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from redis.exceptions import RedisError
from rich import box
from rich.console import Console
from rich.table import Table

from services.supervisor.commands.mesh import Mesh
from services.supervisor.io import configuration
from services.supervisor.io.pruning import Freed, prune_all
from streamway.runtime.process import StartError

_CACHE: Final = "services.cache"


def prune(*, dry: bool, valkey: str | None, options: Mapping[str, str | int | Path | None]) -> None:
    """Prints what was, or would be, freed. Raises StartError when Valkey does not answer or a folder cannot be cleared."""
    try:
        freed = asyncio.run(_prune(Mesh(options), valkey, dry=dry))
    except RedisError as problem:
        raise StartError(f"Valkey failed while it was pruned ({type(problem).__name__}); run it again") from None
    except OSError as problem:
        raise StartError(f"cannot clear {problem.filename}: {problem.strerror}") from None
    _print(freed, "would free" if dry else "freed")


async def _prune(mesh: Mesh, valkey: str | None, *, dry: bool) -> list[Freed]:
    return await prune_all(mesh.valkey_url(valkey), await _cache(), dry=dry)


async def _cache() -> dict[str, Any]:
    """As the cache itself would read its settings, from the environment or its file."""
    settings: dict[str, Any] = (await configuration.effective(_CACHE, (), os.environ))["cache"]
    return settings


def _print(freed: Sequence[Freed], how: str) -> None:
    table = Table(title=how, box=box.SIMPLE, title_justify="left", show_footer=True)
    table.add_column("what", footer="total")
    table.add_column("number", justify="right", footer=str(sum(row.number for row in freed)))
    table.add_column("bytes", justify="right", footer=f"{sum(row.size_bytes for row in freed):,}")
    for row in freed:
        table.add_row(row.what, str(row.number), f"{row.size_bytes:,}")
    Console(highlight=False).print(table)
