"""Which test files are kept in one process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.together import TOGETHER, FilesTogether

ROOT = Path(__file__).resolve().parents[2]


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Those of a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def is_fixture(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("fixture" in ast.unparse(decorator) for decorator in function.decorator_list)


def wanted(path: Path) -> set[str]:
    """The fixtures that tests and fixtures of a file ask for and that are not its own."""
    asked, own = set(), set()
    for function in functions(path):
        if is_fixture(function):
            own.add(function.name)
        if is_fixture(function) or function.name.startswith("test_"):
            asked |= {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
    return asked - own


@pytest.mark.parametrize("fixtures", TOGETHER)
def test_exactly_the_files_that_share_a_mesh_are_together(fixtures: str) -> None:
    names = set(fixtures.split(", "))
    sharing = {file for file in (ROOT / "tests" / "e2e").glob("test_*.py") if names & wanted(file)}
    assert {str(file.relative_to(ROOT)) for file in sharing} == set(TOGETHER[fixtures])


def test_every_mesh_that_files_may_share_is_known() -> None:
    meshes = {each.name for each in functions(ROOT / "tests" / "e2e" / "conftest.py") if each.name.endswith("mesh")}
    assert meshes == {name for fixtures in TOGETHER for name in fixtures.split(", ")}


def test_a_group_is_one_unit_of_work_and_every_other_file_is_its_own() -> None:
    scope = FilesTogether._split_scope
    scheduler = FilesTogether.__new__(FilesTogether)
    group = {scope(scheduler, f"{file}::test_a[1]") for file in TOGETHER["cache_mesh"]}
    assert group == {"cache_mesh"}
    assert scope(scheduler, "tests/e2e/test_bad_input.py::test_b") == "tests/e2e/test_bad_input.py"
