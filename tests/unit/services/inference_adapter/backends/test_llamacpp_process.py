"""Which cores an engine gets."""

from __future__ import annotations

import os

import pytest

from services.inference_adapter.backends.llamacpp_process import cores_of
from streamway.runtime.process import StartError


def test_cores_are_named_one_by_one_and_by_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(9)))
    assert cores_of("") == []
    assert cores_of("0-2,8") == [0, 1, 2, 8]


def test_cores_that_are_not_ours_stop_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    with pytest.raises(StartError, match="names 1-2, and not all of these can be used here"):
        cores_of("1-2")
