"""docker-compose.yml says only what the services understand, and stops them only after their own drain."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.probe import PORTS, ready
from streamway.config import ServiceSettings, SharedSettings
from streamway.config.base import CONFIG_VARIABLE
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service and name != "tools"}
FOREIGN = {name: service for name, service in SERVICES.items() if "build" not in service}
# Of these it is known what they do without; the others of the profiles could not be run where this was written.
CHECKED = [name for name in SERVICES if name not in ("tools", "otel-collector", "jaeger")]


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
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("172.18.0.4", 0))])
    for variable, value in OURS[name]["environment"].items():
        monkeypatch.setenv(variable, shipped(value))
    # That file is the container's.
    monkeypatch.delenv("STREAMWAY_CONFIG")
    return settings_of(OURS[name])()


def shipped(value: object) -> str:
    """What Compose makes of a value where nothing is set: `${X:-default}` is its default."""
    return re.sub(r"\$\{\w+:[-?]([^}]*)\}", r"\1", str(value))


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
def test_a_container_is_bounded_and_locked_down(name: str) -> None:
    service = SERVICES[name]
    # vLLM writes wherever its libraries like to.
    assert service.get("read_only", name == "vllm") is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "container_name" not in service, "a fixed name forbids a second copy"
    limits = service["deploy"]["resources"]["limits"]
    assert limits["memory"]
    assert limits["pids"]
    # More than the machine has would be refused; each of ours can be had everywhere.
    assert "cpus" not in limits or float(shipped(limits["cpus"])) == 1


@pytest.mark.parametrize("name", CHECKED)
def test_a_container_is_checked_and_restarted(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"]
    assert SERVICES[name]["restart"] == "unless-stopped"


def test_what_waits_for_another_waits_until_it_is_healthy() -> None:
    waits = [
        (name, on, how["condition"]) for name, s in SERVICES.items() for on, how in s.get("depends_on", {}).items()
    ]
    assert {how for _, on, how in waits if on != "jaeger"} == {"service_healthy"}
    assert {(name, on) for name, on, _ in waits} >= {
        ("cache", "valkey"), ("adapter", "valkey"), ("router", "cache"), ("router", "adapter"), ("edge", "router"),
    }  # fmt: skip


@pytest.mark.parametrize("name", [*OURS, "tools"])
def test_our_containers_are_not_root(name: str) -> None:
    assert SERVICES[name]["user"] not in ("", "0", "root", "0:0")


def test_two_workers_are_started_and_every_image_of_others_has_a_version() -> None:
    assert shipped(SERVICES["adapter"]["scale"]) == "2"
    for name, service in FOREIGN.items():
        assert re.fullmatch(r"\$\{[A-Z_]+_IMAGE:-[\w./-]+:v?\d[\w.-]+\}", service["image"]), name


def test_what_is_not_the_mesh_itself_is_behind_a_profile() -> None:
    always = {name for name, service in SERVICES.items() if "profiles" not in service}
    assert always == {"valkey", "cache", "adapter", "router", "edge"}
    assert {p for service in SERVICES.values() for p in service.get("profiles", ())} == {
        "tools",
        "vllm",
        "observability",
    }


@pytest.mark.parametrize("name", OURS)
def test_every_variable_is_a_setting_and_every_value_is_taken(name: str, monkeypatch) -> None:
    kind = settings_of(OURS[name])
    known = {f"{owner.prefix()}{field}".upper() for owner in (kind, SharedSettings) for field in owner.model_fields}
    assert set(OURS[name]["environment"]) <= known | {CONFIG_VARIABLE, "OTEL_EXPORTER_OTLP_ENDPOINT"}
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
    assert PORTS[OURS[name]["build"]["args"]["SERVICE"]] == port, "what the image itself asks"
    # Prometheus asks every container there.
    jobs = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))[
        "scrape_configs"
    ]
    (asked,) = [dns for job in jobs for dns in job["dns_sd_configs"] if name in dns["names"]]
    assert (asked["port"], settings.operations_host) == (port, "0.0.0.0")


@pytest.mark.parametrize("name", [name for name in OURS if name != "edge"])
def test_each_of_many_containers_has_its_own_name_and_address(name: str, monkeypatch) -> None:
    settings = effective(name, monkeypatch)
    assert settings.advertise == f"172.18.0.4:{settings.port}"
    names = {getattr(settings, field) for field in ("worker", "id", "node") if hasattr(settings, field)}
    assert len(names) == 1
    assert names.pop().endswith(f"-{socket.gethostname()}")


def test_only_the_edge_and_what_people_look_at_is_published_and_on_loopback() -> None:
    assert [name for name, service in SERVICES.items() if service.get("ports")] == [
        "edge",
        "jaeger",
        "prometheus",
        "grafana",
    ]
    assert all(port.startswith("127.0.0.1:") for service in SERVICES.values() for port in service.get("ports", ()))


def test_what_the_profiles_mount_is_there() -> None:
    mounts = [
        mount for service in SERVICES.values() for mount in service.get("volumes", ()) if mount.startswith("./deploy")
    ]
    assert len(mounts) == 4
    for mount in mounts:
        assert (ROOT / mount.split(":")[0]).exists(), mount


@pytest.mark.parametrize("profiles", ["", "tools,vllm,observability"])
def test_compose_itself_reads_the_file(profiles: str) -> None:
    command = next(
        (c for c in (["docker", "compose"], ["docker-compose"]) if shutil.which(c[0]) and version_of(c) > 1), None
    )
    if command is None:
        pytest.skip("Compose is not installed")
    environment = {**os.environ, "STREAMWAY_MESH_TOKEN": "x", "COMPOSE_PROFILES": profiles, "PORT": "8080-8083"}
    subprocess.run([*command, "config", "--quiet"], check=True, cwd=ROOT, env=environment, timeout=60)


def version_of(command: list[str]) -> int:
    found = subprocess.run([*command, "version", "--short"], capture_output=True, text=True, check=False, timeout=60)
    return int(found.stdout.lstrip("v").partition(".")[0]) if found.returncode == 0 else 0


def test_valkey_keeps_its_keys() -> None:
    command = SERVICES["valkey"]["command"]
    assert "--maxmemory-policy noeviction" in command
    assert "--appendonly yes" in command


def test_the_image_installs_by_hash_and_has_no_root() -> None:
    text = (ROOT / "services" / "Dockerfile").read_text(encoding="utf-8")
    installs = re.findall(r"pip(?: --python \S+)? install [^\\\n]*", text)
    assert len(installs) == 4
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)
    assert "USER 10001:10001" in text
    assert "HEALTHCHECK" in text
    assert not text.startswith("# syntax="), "that line would pull an image"


def test_the_probe_says_no_where_nothing_listens() -> None:
    assert not ready(free_port())
