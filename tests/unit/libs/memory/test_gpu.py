"""The memory of GPUs. No machine of ours has one: what stands for NVIDIA's library answers as its documentation says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamway.memory.gpu import GPUMemory, devices_of


class Library:
    """Three GPUs with 10, 50 and 90 % in use."""

    class NVMLError(Exception):
        """What the library raises."""

    def __init__(self) -> None:
        self.used = {0: 10, 1: 50, 2: 90}
        self.lost = False

    def nvmlDeviceGetCount(self) -> int:
        return len(self.used)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:
        if number not in self.used:
            raise self.NVMLError("Invalid Argument")
        return number

    def nvmlDeviceGetHandleByUUID(self, name: str) -> int:
        if not name.startswith("GPU-"):
            raise self.NVMLError("Not Found")
        return int(name.removeprefix("GPU-"))

    def nvmlDeviceGetMemoryInfo(self, device: int) -> Any:
        if self.lost:
            raise self.NVMLError("GPU is lost")
        return SimpleNamespace(used=self.used[device], total=100, free=100 - self.used[device])

    def nvmlDeviceGetUUID(self, device: int) -> str:
        return f"GPU-{device}"


@pytest.mark.parametrize(
    ("visible", "share"),
    [
        (None, 0.9),
        ("0,1", 0.5),
        ("GPU-2", 0.9),
        (" 1 , 0", 0.5),
        ("0,7,2", 0.1),
        ("0,what,2", 0.1),
        ("-1", None),
        ("", None),
    ],
)
def test_the_fullest_of_those_that_are_visible_counts(visible: str | None, share: float | None) -> None:
    library = Library()
    assert GPUMemory(library, devices_of(library, visible)).share() == share


def test_one_that_is_lost_says_nothing() -> None:
    library = Library()
    gpus = GPUMemory(library, devices_of(library, "0"))
    library.lost = True
    assert gpus.share() is None


def test_without_a_gpu_there_is_nothing_to_read() -> None:
    gpus = GPUMemory.of_this_process({"CUDA_VISIBLE_DEVICES": ""})
    assert len(gpus) == 0
    assert gpus.share() is None


def test_names_and_room_are_those_of_the_devices_that_are_visible() -> None:
    nvml = Library()
    gpus = GPUMemory(nvml, devices_of(nvml, "2,1"))
    assert gpus.names() == ["GPU-2", "GPU-1"]
    assert gpus.free_bytes() == 60
    nvml.lost = True
    assert gpus.free_bytes() == 0
