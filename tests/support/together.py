"""Which test files run in one process, one after the other, where files run side by side: those that share a mesh.

A mesh takes seconds to start and a tenth of a core as long as it runs, and each process has its own.
"""

from __future__ import annotations

from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler.loadfile import LoadFileScheduling

# By the fixtures of tests/e2e/conftest.py that start a mesh.
TOGETHER: Final = {
    "mesh, engine_mesh": (
        "tests/e2e/test_acceptance_cancel.py",
        "tests/e2e/test_acceptance_framing.py",
        "tests/e2e/test_acceptance_limits.py",
        "tests/e2e/test_client.py",
        "tests/e2e/test_client_pages.py",
        "tests/e2e/test_command.py",
        "tests/e2e/test_console.py",
        "tests/e2e/test_cost.py",
        "tests/e2e/test_dashboards.py",
        "tests/e2e/test_readme.py",
        "tests/e2e/test_resume.py",
        "tests/e2e/test_single_flight.py",
    ),
    "cache_mesh": (
        "tests/e2e/test_cache.py",
        "tests/e2e/test_cache_page.py",
        "tests/e2e/test_feedback.py",
    ),
}
_OF: Final = {file: name for name, files in TOGETHER.items() for file in files}


class FilesTogether(LoadFileScheduling):
    """Gives a process a file at a time, or one of these groups."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return _OF.get(file, file)
