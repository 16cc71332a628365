"""ARCHITECTURE.md names files and symbols that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
SYMBOLS = sorted(set(re.findall(r"`([\w/.]+\.py): ([\w.]+)`", PAGE)))
PATHS = sorted({path for path in re.findall(r"`([\w/.-]+/[\w/.-]*)`", PAGE) if "<" not in path})
HOPS = re.findall(r"^(\d+)\. (.*)$", PAGE, re.MULTILINE)


def names_in(body: list[ast.stmt], prefix: str = "") -> set[str]:
    """Classes, functions, methods and module-level constants, as `Class.method`."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.ClassDef):
            found |= {prefix + node.name} | names_in(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(prefix + node.name)
        elif isinstance(node, ast.Assign):
            found |= {prefix + target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(prefix + node.target.id)
    return found


@pytest.mark.parametrize(("path", "symbol"), SYMBOLS, ids=lambda part: part)
def test_a_named_symbol_exists(path: str, symbol: str) -> None:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert symbol in names_in(tree.body)


@pytest.mark.parametrize("path", PATHS)
def test_a_named_path_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_hops_are_numbered_and_each_says_where_it_is() -> None:
    assert [int(number) for number, _ in HOPS] == list(range(1, len(HOPS) + 1))
    assert all(re.match(r"`[\w/.]+\.py: [\w.]+` — ", text) for _, text in HOPS)
