"""`streamway config`."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import yaml

from services.supervisor.core.plan import MODULES
from services.supervisor.io.configuration import effective
from services.supervisor.settings import UpSettings
from streamway.config import SharedSettings, load
from streamway.runtime.process import StartError


def show() -> None:
    """Prints every section once; refuses with the first complaint."""
    settings, complaints = asyncio.run(_ask_all())
    if complaints:
        raise StartError(next(iter(complaints.values())))
    print(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True), end="")


def check() -> None:
    """Prints one line for each service."""
    settings, complaints = asyncio.run(_ask_all())
    for name in [*settings, *complaints]:
        print(f"{name:<8} {complaints.get(name, 'ok')}")
    if complaints:
        sys.exit(2)


async def _ask_all() -> tuple[dict[str, Any], dict[str, str]]:
    """The settings by section, and what is wrong by service."""
    settings: dict[str, Any] = {}
    complaints: dict[str, str] = {}

    async def ask(kind: str, module: str) -> None:
        try:
            settings.update(await effective(module, (), os.environ))
        except StartError as problem:
            complaints[kind] = str(problem)

    try:
        up, _ = load(UpSettings, SharedSettings, arguments=[])
        settings["up"] = up.shown()
    except StartError as problem:
        complaints["up"] = str(problem)
    async with asyncio.TaskGroup() as group:
        for kind, module in MODULES.items():
            group.create_task(ask(kind, module))
    order = ["shared", "up", *MODULES]
    return {name: settings[name] for name in order if name in settings}, complaints
