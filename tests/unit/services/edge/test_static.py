"""What of streamway.js needs no browser, by Node's own test runner: tests/js."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.needs import program

ROOT = Path(__file__).resolve().parents[4]


def test_the_ladder_and_the_answer_of_streamway_js() -> None:
    node = program("node", "nodejs", package="nodejs")
    files = sorted(map(str, (ROOT / "tests" / "js").glob("*.test.mjs")))
    done = subprocess.run([node, "--test", *files], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
