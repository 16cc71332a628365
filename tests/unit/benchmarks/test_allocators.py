"""The churn that allocators are compared under."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from benchmarks import allocators


def test_every_arm_gets_the_same_churn_of_every_surface_and_other_seeds_another() -> None:
    first, again, other = (list(islice(allocators.loads(seed), 40)) for seed in (1, 1, 2))
    assert first == again != other
    surfaces = {load[load.index("--surface") + 1] for load in first}
    assert surfaces == {"sse", "websocket", "rest"}
    assert any("--cut-at" in load for load in first)
    sizes = [(int(load[load.index("--streams") + 1]), int(load[load.index("--prompt-bytes") + 1])) for load in first]
    assert max(size for _, size in sizes) == 64_000
    assert all(streams * size <= 1_000_000 for streams, size in sizes)
    # Only a stream can be cut at a frame.
    assert all(load[load.index("--surface") + 1] == "sse" for load in first if "--cut-at" in load)


def test_a_library_that_is_not_there_leaves_its_arm_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocators, "_FOLDERS", (str(tmp_path),))
    assert allocators.environment("glibc") == {}
    assert allocators.environment("jemalloc") is None
    (tmp_path / "libjemalloc.so.2").touch()
    assert allocators.environment("jemalloc") == {"LD_PRELOAD": str(tmp_path / "libjemalloc.so.2")}
