"""The pages say what is so: links lead somewhere, named tests exist, every decision is listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TESTS = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text)]
    broken = [target for target in targets if target and "://" not in target and not (page.parent / target).exists()]
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_test_that_a_page_names_exists(page: Path) -> None:
    named = set(re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8")))
    assert named <= TESTS


def test_every_decision_is_listed_and_has_its_parts() -> None:
    folder = ROOT / "docs" / "adr"
    index = (folder / "README.md").read_text(encoding="utf-8")
    decisions = sorted(folder.glob("[0-9]*.md"))
    assert [int(path.name[:4]) for path in decisions] == list(range(1, len(decisions) + 1))
    for path in decisions:
        text = path.read_text(encoding="utf-8")
        assert path.name in index
        for part in (
            "Status:",
            "## Context",
            "## Decision",
            "## Alternatives",
            "## Consequences",
            "## How it is checked",
        ):
            assert part in text, f"{path.name} lacks {part}"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_code_cites_only_sections_that_exist() -> None:
    sections = set(re.findall(r"^## (\d+)\.", (ROOT / "docs/design.md").read_text(encoding="utf-8"), re.MULTILINE))
    for folder in ("libs", "services", "scripts", "benchmarks", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            cited = set(re.findall(r"design\.md §(\d+)", path.read_text(encoding="utf-8")))
            assert cited <= sections, path


def test_every_metric_that_a_page_names_is_in_the_code() -> None:
    code = "\n".join(
        path.read_text("utf-8") for folder in ("libs", "services") for path in (ROOT / folder).rglob("*.py")
    )
    told = {
        name
        for page in PAGES
        if page.name != "CHANGELOG.md"
        for name in re.findall(r"`(streamway_[a-z_]+)", page.read_text("utf-8"))
    }
    named = {name for name in told if not name.endswith("_")} - {"streamway_faults"}
    assert len(named) > 50
    assert [
        n
        for n in sorted(named)
        if not {f'"{n}"', f'"{n.removesuffix("_total")}"'} & set(re.findall(r'"[a-z_]+"', code))
    ] == []
