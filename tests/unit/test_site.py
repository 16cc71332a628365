"""The site of docs/ has every page of it but the single decisions, which their index links to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


def pages(nav: list[Any]) -> set[str]:
    found: set[str] = set()
    for row in nav:
        if isinstance(row, str):
            found.add(row)
        else:
            for part in row.values():
                found |= pages(part)
    return found


def test_every_page_is_in_the_navigation() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    there = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    decisions = {page for page in there if page.startswith("adr/") and page != "adr/README.md"}
    assert pages(site["nav"]) == there - decisions
