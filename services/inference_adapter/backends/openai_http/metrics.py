"""How busy an engine says it is, from its Prometheus metrics."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from services.inference_adapter.interfaces import EngineLoad

# One sample: name, optional labels, value.
_SAMPLE: Final = re.compile(rb"^([a-z_]+:[a-z_]+)(?:\{[^\n]*\})?[ \t]+([-+0-9.eE]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Names:
    running: str
    waiting: str
    kv_used: str


_ENGINES: Final = (
    _Names("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"),
    # Older vLLM.
    _Names("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:gpu_cache_usage_perc"),
    _Names("llamacpp:requests_processing", "llamacpp:requests_deferred", ""),
    _Names("simulated:requests_running", "simulated:requests_waiting", "simulated:kv_used_ratio"),
)


def read(text: bytes) -> EngineLoad | None:
    """The load in a metrics page, or None when no engine we know wrote it.

    Series of one name (vLLM has one for each of its engines) are added up; of KV use the highest counts.
    """
    sums: dict[str, float] = {}
    highest: dict[str, float] = {}
    for match in _SAMPLE.finditer(text):
        name = match[1].decode()
        try:
            value = float(match[2])
        except ValueError:
            continue
        sums[name] = sums.get(name, 0.0) + value
        highest[name] = max(highest.get(name, value), value)
    for names in _ENGINES:
        if names.running in sums and (not names.kv_used or names.kv_used in highest):
            kv_used = min(1.0, max(0.0, highest[names.kv_used])) if names.kv_used else None
            return EngineLoad(int(sums[names.running]), int(sums.get(names.waiting, 0)), kv_used)
    return None
