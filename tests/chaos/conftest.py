"""The mesh that chaos tests kill parts of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mesh import MeshProcesses

# Two slots a worker, 60 tokens/s a stream, and a prefill slow enough to be caught in.
ENVIRONMENT = {
    "STREAMWAY_ADAPTER_SLOTS": "4",
    "STREAMWAY_ADAPTER_SIMULATION__TOKENS_PER_S": "60",
    "STREAMWAY_ADAPTER_SIMULATION__PREFILL_TOKENS_PER_S": "60",
}


@pytest.fixture(scope="module")
def chaos_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshProcesses]:
    """Two workers, two edges on one port."""
    folder: Path = tmp_path_factory.mktemp("chaos")
    mesh = MeshProcesses(folder, arguments=("--workers", "2", "--edges", "2"), environment=ENVIRONMENT, start_s=120)
    yield mesh
    mesh.close()
