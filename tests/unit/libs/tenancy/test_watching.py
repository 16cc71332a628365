"""Tenants that change while the process runs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from pydantic import SecretStr
from structlog.testing import capture_logs

from streamway.config import SharedSettings
from streamway.runtime.process import StartError
from streamway.tenancy import hash_key
from streamway.tenancy.watching import TenancyWatch

KEY, OTHER = hash_key("k-1"), hash_key("k-2")


def text_of(key: str = KEY, **more: object) -> str:
    extra = "".join(f", {name}: {value}" for name, value in more.items())
    return f"tenants: {{acme: {{tier: gold, keys: [{key}]{extra}}}}}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "tenants.yaml"
    made.write_text(text_of())
    return made


def count(registry: CollectorRegistry, outcome: str) -> float | None:
    return registry.get_sample_value("streamway_config_reloads_total", {"outcome": outcome})


async def test_a_change_replaces_the_whole_and_is_counted(path: Path) -> None:
    registry = CollectorRegistry()
    watch = TenancyWatch(SharedSettings(tenants_file=path), registry)
    before = watch.tenancy
    assert not await watch.look()
    path.write_text(text_of(OTHER, concurrency=3))
    assert await watch.look()
    assert watch.tenancy is not before
    assert watch.tenancy.keys == {OTHER: "acme"}
    assert watch.tenancy.tenants["acme"].quota.concurrency == 3
    assert (count(registry, "applied"), count(registry, "refused")) == (1, 0)
    assert registry.get_sample_value("streamway_tenants") == 1


async def test_a_bad_change_keeps_the_last_good_one_and_is_told_once_without_a_secret(path: Path) -> None:
    registry = CollectorRegistry()
    watch = TenancyWatch(SharedSettings(tenants_file=path), registry)
    before = watch.tenancy
    path.write_text(text_of("sw-a-key-by-mistake"))
    with capture_logs() as logs:
        for _ in range(25):
            assert not await watch.look()
    assert watch.tenancy is before
    assert [entry["event"] for entry in logs] == ["config_not_reloaded"]
    assert "tenants.acme.keys.0" in logs[0]["problem"]
    assert "sw-a-key-by-mistake" not in str(logs)
    assert (count(registry, "applied"), count(registry, "refused")) == (0, 1)
    path.write_text(text_of(OTHER))
    assert await watch.look()
    assert watch.tenancy.keys == {OTHER: "acme"}


async def test_a_file_that_is_replaced_or_vanishes_is_noticed(path: Path) -> None:
    watch = TenancyWatch(SharedSettings(tenants_file=path))
    new = path.with_name("new.yaml")
    new.write_text(text_of(OTHER))
    # As tools replace a file, with the size and time of the one before.
    status = path.stat()
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    new.replace(path)
    assert await watch.look()
    path.unlink()
    assert not await watch.look()
    assert watch.tenancy.keys == {OTHER: "acme"}


async def test_a_file_that_was_touched_changes_nothing(path: Path) -> None:
    registry = CollectorRegistry()
    watch = TenancyWatch(SharedSettings(tenants_file=path), registry)
    before = watch.tenancy
    os.utime(path, ns=(1, 1))
    assert not await watch.look()
    assert watch.tenancy is before
    assert count(registry, "applied") == 0


async def test_the_last_key_is_not_taken_away_and_the_first_needs_a_mesh_token(path: Path) -> None:
    watch = TenancyWatch(SharedSettings(tenants_file=path))
    path.write_text("")
    assert not await watch.look()
    assert watch.tenancy.has_credentials
    open_ = TenancyWatch(SharedSettings(tenants_file=path))
    with_token = TenancyWatch(SharedSettings(tenants_file=path, mesh_token=SecretStr("t")))
    path.write_text(text_of())
    assert not await open_.look()
    assert not open_.tenancy.has_credentials
    assert await with_token.look()


async def test_a_change_counts_within_a_second(path: Path) -> None:
    watch = TenancyWatch(SharedSettings(tenants_file=path, tenants_poll_s=0.1))
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        task = group.create_task(watch.run())
        path.write_text(text_of(OTHER))
        while watch.tenancy.keys != {OTHER: "acme"}:
            await asyncio.sleep(0.01)
        task.cancel()


def test_a_bad_file_at_the_start_stops_it(path: Path) -> None:
    path.write_text("tenants: 1")
    with pytest.raises(StartError):
        TenancyWatch(SharedSettings(tenants_file=path))
    path.write_text(text_of())
    with pytest.raises(StartError, match="no"):
        TenancyWatch(SharedSettings(tenants_file=path), objection=lambda _: "no")
