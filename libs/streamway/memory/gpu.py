"""Reads how full the memory of the GPUs is that this process may use, through NVIDIA's library where it is installed.

Unverified on a real GPU: none was at hand. Tests put a library of their own in the place of NVIDIA's.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any, Final

import structlog

_log = structlog.get_logger("memory")
_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"


class GPUMemory:
    """The fullest GPU. Without the package `nvidia-ml-py`, a driver or a GPU there is nothing to read, and that is no error."""

    def __init__(self, nvml: Any, devices: list[Any]) -> None:
        """`devices` are handles of `nvml`."""
        self._nvml = nvml
        self._devices = devices

    @classmethod
    def of_this_process(cls, environment: Mapping[str, str] = os.environ) -> GPUMemory:
        """All that `CUDA_VISIBLE_DEVICES` names, by number or UUID; where it is not set all of the machine."""
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            return cls(None, [])
        try:
            nvml.nvmlInit()
            return cls(nvml, devices_of(nvml, environment.get(_VISIBLE)))
        except nvml.NVMLError as problem:
            _log.info("gpu_unreadable", problem=str(problem))
            return cls(None, [])

    def __len__(self) -> int:
        """Number of GPUs that are read."""
        return len(self._devices)

    def names(self) -> list[str]:
        """Their UUIDs. Raises the library's error where one does not tell."""
        names = (self._nvml.nvmlDeviceGetUUID(device) for device in self._devices)
        return [name.decode() if isinstance(name, bytes) else str(name) for name in names]

    def free_bytes(self) -> int:
        """What is free on all of them; 0 where one does not say."""
        try:
            return sum(self._nvml.nvmlDeviceGetMemoryInfo(device).free for device in self._devices)
        except self._nvml.NVMLError as problem:
            _log.warning("gpu_unreadable", problem=str(problem))
            return 0

    def share(self) -> float | None:
        """Of the fullest one what is in use, 0 … 1; None where there is none, or it does not say."""
        shares = []
        for device in self._devices:
            try:
                memory = self._nvml.nvmlDeviceGetMemoryInfo(device)
            except self._nvml.NVMLError as problem:
                _log.warning("gpu_unreadable", problem=str(problem))
                return None
            shares.append(memory.used / memory.total if memory.total else 0.0)
        return max(shares, default=None)


def devices_of(nvml: Any, visible: str | None) -> list[Any]:
    """Handles of what a value of `CUDA_VISIBLE_DEVICES` names. As CUDA does, it stops at the first that does not exist."""
    if visible is None:
        return [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
    devices: list[Any] = []
    for name in (word.strip() for word in visible.split(",")):
        try:
            by_number = name.isdecimal()
            found = nvml.nvmlDeviceGetHandleByIndex(int(name)) if by_number else nvml.nvmlDeviceGetHandleByUUID(name)
        except nvml.NVMLError:
            break
        devices.append(found)
    return devices
