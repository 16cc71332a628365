"""Which cores an engine gets, and what is cleared up before it starts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from services.inference_adapter.backends.llamacpp_process import FOLDER, cores_of, remove_left_folders
from streamway.runtime.process import StartError


def test_cores_are_named_one_by_one_and_by_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(9)))
    assert cores_of("") == []
    assert cores_of("0-2,8") == [0, 1, 2, 8]


def test_cores_that_are_not_ours_stop_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    with pytest.raises(StartError, match="names 1-2, and not all of these can be used here"):
        cores_of("1-2")


def test_only_folders_of_adapters_that_are_gone_are_removed() -> None:
    """Between binding and listening nobody answers on a socket either: another worker may be starting."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    # Not pytest's folder: a socket's path must be short.
    with tempfile.TemporaryDirectory() as parent:
        held = []
        for pid in (os.getpid(), ended.pid):
            folder = Path(parent) / f"{FOLDER}{pid}-ab"
            folder.mkdir()
            bound = socket.socket(socket.AF_UNIX)
            bound.bind(str(folder / "engine.sock"))
            held.append(bound)
        remove_left_folders(Path(parent))
        for bound in held:
            bound.close()
        assert [path.name for path in Path(parent).iterdir()] == [f"{FOLDER}{os.getpid()}-ab"]
