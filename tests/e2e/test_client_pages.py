"""Every example of docs/clients is run as it stands there, against one mesh; only addresses are those of the mesh."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
from functools import partial
from pathlib import Path

import pytest
from playwright.async_api import Browser, ConsoleMessage

from tests.support.browser import browser_page, in_browser
from tests.support.mesh import MeshProcesses
from tests.support.needs import OPT_IN

PAGES = Path(__file__).resolve().parents[2] / "docs" / "clients"
RUN = ("python", "bash", "javascript")
# grpcurl is only shown: no package that is pinned here has it. LangChain has a test of its own, opt-in.
SHOWN = {("http.md", ""), ("http.md", "py")}
LANGCHAIN = os.environ.get("TEST_LANGCHAIN", "")


def examples(*languages: str) -> list[tuple[str, str, str]]:
    """Page, language and text of each block."""
    found = []
    for page in sorted(PAGES.glob("*.md")):
        for language, text in re.findall(
            r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        ):
            if not languages or language in languages:
                found.append((page.name, language, text))
    return found


def on(mesh: MeshProcesses, text: str) -> str:
    """The same example for the addresses of a mesh."""
    router = mesh.address("router-0")
    return text.replace("http://127.0.0.1:8080", mesh.edge_url).replace("127.0.0.1:7001", router)


def _note(said: list[str], message: ConsoleMessage) -> None:
    said.append(message.text)


def named(example: tuple[str, str, str]) -> str:
    return f"{example[0]}-{example[1]}"


def test_every_example_is_run_or_known_to_be_shown_only() -> None:
    left = {(page, language) for page, language, _ in examples() if language not in RUN}
    assert left == SHOWN
    assert {page for page, _, _ in examples(*RUN)} == {page.name for page in PAGES.glob("*.md")}


@pytest.mark.parametrize("example", examples("python", "bash"), ids=named)
def test_an_example_runs_as_it_is_shown(mesh: MeshProcesses, example: tuple[str, str, str]) -> None:
    page, language, text = example
    if language == "python":
        # Here, and not in a process of its own: what it imports is imported once.
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(on(mesh, text), page, "exec"), {"__name__": "__main__"})
        told = printed.getvalue()
    else:
        command = ["bash", "-euo", "pipefail", "-c", on(mesh, text)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (ran.returncode, ran.stderr) == (0, "")
        told = ran.stdout
    assert told.strip()
    assert '"error"' not in told


@pytest.mark.skipif(not LANGCHAIN, reason=f"{OPT_IN}the example for LangChain runs by make test-langchain")
def test_the_langchain_example_runs_in_an_environment_of_its_own(mesh: MeshProcesses) -> None:
    ((_, _, text),) = examples("py")
    command = [f"{LANGCHAIN}/bin/python", "-c", on(mesh, text)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert len(ran.stdout.split()) > 3


@in_browser
async def test_the_javascript_examples_run_in_a_browser(browser: Browser, mesh: MeshProcesses) -> None:
    for _, _, text in examples("javascript"):
        async with browser_page(browser, "favicon.ico") as page:
            said: list[str] = []
            page.on("console", partial(_note, said))
            await page.goto(mesh.edge_url)
            # A function of the browser's own, in which `await` works as at the top of a module.
            await page.evaluate(f"async () => {{ {on(mesh, text)} }}")
            assert any(len(line) > 20 for line in said), said
