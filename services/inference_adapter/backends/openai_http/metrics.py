"""How busy an engine says it is, from its Prometheus metrics."""

from __future__ import annotations

import re
from typing import Final

from services.inference_adapter.backends.openai_http.profiles import PROFILES
from services.inference_adapter.interfaces import EngineLoad

# One sample: name, optional labels, value.
_SAMPLE: Final = re.compile(rb"^([a-z_]+(?::[a-z_]+)?)(?:\{([^\n]*)\})?[ \t]+([-+0-9.eE]+)", re.MULTILINE)
_LABEL: Final = re.compile(rb'(num_gpu_blocks|block_size)="(\d{1,12})"')


def names(text: bytes) -> frozenset[str]:
    """Which samples a page has."""
    return frozenset(match[1].decode() for match in _SAMPLE.finditer(text))


def kv_blocks(text: bytes) -> tuple[int, int]:
    """Blocks of the KV cache and tokens of one, where a page tells; else zeros. Several engines behind one page are added up."""
    told = {one.kv_blocks.encode() for profile in PROFILES for one in profile.metrics if one.kv_blocks}
    blocks = size = 0
    for match in _SAMPLE.finditer(text):
        if match[1] in told and match[2]:
            labels = {label[1]: int(label[2]) for label in _LABEL.finditer(match[2])}
            blocks += labels.get(b"num_gpu_blocks", 0)
            size = labels.get(b"block_size", size)
    return blocks, size


def read(text: bytes) -> EngineLoad | None:
    """The load in a metrics page, or None when no engine we know wrote it.

    Series of one name (vLLM has one for each of its engines) are added up; of KV use the highest counts.
    """
    sums: dict[str, float] = {}
    highest: dict[str, float] = {}
    for match in _SAMPLE.finditer(text):
        name = match[1].decode()
        try:
            value = float(match[3])
        except ValueError:
            continue
        sums[name] = sums.get(name, 0.0) + value
        highest[name] = max(highest.get(name, value), value)
    for one in (one for profile in PROFILES for one in profile.metrics):
        if one.running in sums and (not one.kv_used or one.kv_used in highest):
            kv_used = min(1.0, max(0.0, highest[one.kv_used])) if one.kv_used else None
            put_aside = int(sums.get(one.put_aside, 0))
            return EngineLoad(int(sums[one.running]), int(sums.get(one.waiting, 0)), kv_used, put_aside)
    return None
