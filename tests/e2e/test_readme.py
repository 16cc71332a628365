"""What the README shows works as shown."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from tests.support.mesh import MeshProcesses

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_openai_example_prints_an_answer(mesh: MeshProcesses) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example.replace("http://127.0.0.1:8080", mesh.edge_url), "README.md", "exec"), {})
    assert len(printed.getvalue().split()) > 3


def test_every_make_target_it_names_exists() -> None:
    makefile = (Path(__file__).resolve().parents[2] / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)", README)) <= targets
