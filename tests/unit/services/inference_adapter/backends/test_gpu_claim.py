"""No two workers have an engine on one GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.inference_adapter.backends.gpu_claim import GPUClaim
from streamway.runtime.process import StartError


def test_a_gpu_has_one_engine_at_a_time(tmp_path: Path) -> None:
    first = GPUClaim.of(["GPU-1", "GPU-2"], tmp_path)
    with pytest.raises(StartError, match="GPU-2 has another worker's engine"):
        GPUClaim.of(["GPU-3", "GPU-2"], tmp_path)
    # What it had already is free again.
    third = GPUClaim.of(["GPU-3"], tmp_path)
    first.release()
    GPUClaim.of(["GPU-2"], tmp_path).release()
    third.release()


def test_names_do_not_leave_the_folder(tmp_path: Path) -> None:
    claim = GPUClaim.of(["../MIG/x"], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["streamway----MIG-x.lock"]
    claim.release()
