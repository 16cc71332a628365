"""Slot files are bounded, and their names tell nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path

from services.inference_adapter.backends.llamacpp_slots import SlotFiles


def files(folder: Path, most_bytes: int = 1000, ttl_s: float = 100.0, fingerprint: str = "f") -> SlotFiles:
    made = SlotFiles(folder / "slots", fingerprint, most_bytes, ttl_s)
    made.open()
    return made


def write(made: SlotFiles, folder: Path, session: str, size: int, age_s: float = 0.0) -> None:
    path = folder / "slots" / made.name(session)
    path.write_bytes(bytes(size))
    os.utime(path, (time.time() - age_s,) * 2)


def test_the_folder_is_its_owners(tmp_path: Path) -> None:
    files(tmp_path)
    assert (tmp_path / "slots").stat().st_mode & 0o777 == 0o700


def test_the_oldest_go_when_there_is_too_much(tmp_path: Path) -> None:
    made = files(tmp_path)
    for number, name in enumerate("abc"):
        write(made, tmp_path, name, 400, age_s=10.0 * number)
    made.trim()
    assert [name for name in "abc" if made.has(name)] == ["a", "b"]


def test_what_is_too_old_goes_and_other_files_stay(tmp_path: Path) -> None:
    made = files(tmp_path)
    write(made, tmp_path, "a", 1, age_s=101.0)
    (tmp_path / "slots" / "readme").write_text("mine")
    made.trim()
    assert not made.has("a")
    assert (tmp_path / "slots" / "readme").exists()


def test_other_weights_have_other_files(tmp_path: Path) -> None:
    one = files(tmp_path)
    assert "secret" not in one.name("secret")
    assert one.name("s") != files(tmp_path, fingerprint="g").name("s")
    one.drop("s")
    assert not one.has("s")
