"""`streamway config`."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import asdict
from enum import StrEnum
from typing import Any

import yaml

from services.supervisor.core.plan import MODULES
from services.supervisor.io.configuration import effective
from services.supervisor.io.starting import Forks, Spawner
from services.supervisor.settings import UpSettings
from streamway.config import SharedSettings, load
from streamway.models import ModelRouting, load_models
from streamway.runtime.process import StartError
from streamway.tenancy import Tenancy, load_tenancy


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


def _shown(tenancy: Tenancy) -> dict[str, Any]:
    """What each tenant has, tiers filled in; of its keys only how many."""
    rows: dict[str, Any] = {}
    for name, tenant in tenancy.tenants.items():
        row = {
            field: str(value) if isinstance(value, StrEnum) else value
            for field, value in asdict(tenant).items()
            if field not in ("name", "allowed_models", "quota")
        }
        row["keys"] = sum(owner == name for owner in tenancy.keys.values())
        row["allowed_models"] = sorted(tenant.allowed_models) if tenant.allowed_models is not None else "all"
        rows[name] = row | asdict(tenant.quota)
    jwt = tenancy.jwt
    return {
        "default_tier": str(tenancy.default_tier.name) if tenancy.default_tier else None,
        "anonymous": tenancy.anonymous or None,
        "jwt": {"issuer": jwt.issuer, "audience": jwt.audience, "algorithm": jwt.algorithm} if jwt else None,
        "tenants": rows,
    }


async def _ask_all() -> tuple[dict[str, Any], dict[str, str]]:
    """The settings by section, and what is wrong by service."""
    settings: dict[str, Any] = {}
    complaints: dict[str, str] = {}

    async def ask(kind: str, module: str) -> None:
        try:
            settings.update(await effective(module, (), os.environ, forks))
        except StartError as problem:
            complaints[kind] = str(problem)

    try:
        up, shared = load(UpSettings, SharedSettings, arguments=[])
        settings["up"] = up.shown()
    except StartError as problem:
        complaints["up"] = str(problem)
    else:
        try:
            tenancy = load_tenancy(shared)
            if tenancy.configured:
                settings["tenancy"] = _shown(tenancy)
        except StartError as problem:
            complaints["tenancy"] = str(problem)
    try:
        routing = load_models()
        if routing != ModelRouting():
            settings["models"] = asdict(routing)
    except StartError as problem:
        complaints["models"] = str(problem)
    # Most of what one imports for its settings the others import too.
    forks = Forks(Spawner(), [f"{module}.settings" for module in MODULES.values()])
    await forks.open(os.environ)
    try:
        async with asyncio.TaskGroup() as group:
            for kind, module in MODULES.items():
                group.create_task(ask(kind, module))
    finally:
        await forks.close()
    order = ["shared", "up", *MODULES, "tenancy", "models"]
    return {name: settings[name] for name in order if name in settings}, complaints
