"""docker-compose.yml says only what the services understand, and stops them only after their own drain."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.probe import ready
from streamway.config import ServiceSettings, SharedSettings
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}


def settings_of(service: dict[str, Any]) -> type[ServiceSettings]:
    module = importlib.import_module(f"services.{service['build']['args']['SERVICE']}.settings")
    (kind,) = [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, ServiceSettings) and kind.__module__ == module.__name__
    ]
    return kind


def effective(name: str, monkeypatch: pytest.MonkeyPatch) -> ServiceSettings:
    """The settings a container starts with: variables are put in, `${X:-default}` becomes its default."""
    for variable, value in OURS[name]["environment"].items():
        monkeypatch.setenv(variable, re.sub(r"\$\{\w+:[-?]([^}]*)\}", r"\1", str(value)))
    return settings_of(OURS[name])()


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def test_every_service_of_ours_is_there() -> None:
    assert {service["build"]["args"]["SERVICE"] for service in OURS.values()} == {
        "edge",
        "router",
        "inference_adapter",
        "cache",
    }


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_is_checked_restarted_and_locked_down(name: str) -> None:
    service = SERVICES[name]
    assert service["healthcheck"]["test"]
    assert service["restart"] == "unless-stopped"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "container_name" not in service, "a fixed name forbids a second copy"


@pytest.mark.parametrize("name", OURS)
def test_our_containers_are_not_root(name: str) -> None:
    assert OURS[name]["user"] not in ("", "0", "root", "0:0")


@pytest.mark.parametrize("name", OURS)
def test_every_variable_is_a_setting_and_every_value_is_taken(name: str, monkeypatch) -> None:
    kind = settings_of(OURS[name])
    known = {f"{owner.prefix()}{field}".upper() for owner in (kind, SharedSettings) for field in owner.model_fields}
    assert set(OURS[name]["environment"]) <= known
    effective(name, monkeypatch)
    SharedSettings()


@pytest.mark.parametrize("name", OURS)
def test_a_container_is_killed_only_after_its_drain(name: str, monkeypatch) -> None:
    settings = effective(name, monkeypatch)
    assert seconds(OURS[name]["stop_grace_period"]) >= settings.drain_grace_s + 10


@pytest.mark.parametrize("name", OURS)
def test_the_health_check_asks_the_port_that_the_service_opens(name: str, monkeypatch) -> None:
    settings = effective(name, monkeypatch)
    port = settings.operations_port
    if port is None:
        port = settings.port + 1000 if name != "edge" else 9100 + settings.index
    assert OURS[name]["healthcheck"]["test"] == ["CMD", "python", "-m", "services.probe", str(port)]


@pytest.mark.parametrize("name", [name for name in OURS if name != "edge"])
def test_what_others_connect_to_is_the_containers_name_and_port(name: str, monkeypatch) -> None:
    settings = effective(name, monkeypatch)
    assert settings.advertise == f"{name}:{settings.port}"


def test_only_the_edge_is_published_and_on_loopback() -> None:
    assert [name for name, service in SERVICES.items() if service.get("ports")] == ["edge"]
    assert all(port.startswith("127.0.0.1:") for port in SERVICES["edge"]["ports"])


def test_valkey_keeps_its_keys() -> None:
    command = " ".join(SERVICES["valkey"]["command"])
    assert "--maxmemory-policy noeviction" in command
    assert "--appendonly yes" in command


def test_the_image_installs_by_hash_and_has_no_root() -> None:
    text = (ROOT / "services" / "Dockerfile").read_text(encoding="utf-8")
    installs = re.findall(r"pip install [^\\\n]*", text)
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)
    assert "USER 10001:10001" in text
    assert not text.startswith("# syntax="), "that line would pull an image"


def test_the_probe_says_no_where_nothing_listens() -> None:
    assert not ready(free_port())
