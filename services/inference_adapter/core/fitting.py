"""How many slots of an engine fit into the memory that it may use.

    │ 15/16 of what is available                                                          │ rest │
    │ weights │ buffers │ KV of slot 0 │ KV of slot 1 │ … │ half of what is left: prompt cache │

llama.cpp takes the KV of all its slots when it starts. The prompt cache (KV of conversations that lost their slot) grows later:
it gets no memory that is not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from services.inference_adapter.core.gguf import ModelFile

# Tokens computed at once in prefill. llama.cpp looks for a cancel only between batches: with its default of 2,048 a cancel
# in prefill takes seconds on a CPU, with 128 it takes 0.06–0.2 s.
PREFILL_BATCH: Final = 128
# Most for the KV of conversations that lost their slot; llama.cpp's default of 8,192 MiB is more than many machines spare.
MOST_CACHE_MIB: Final = 1024
_MIB: Final = 1024 * 1024
# What an engine has beside weights and KV, measured with a small model: interpreter, graphs, threads.
_BASE_BYTES: Final = 96 * _MIB
_LOGIT_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """How large an engine is made. `context_tokens` are those of one slot, `cache_mib` is for the KV of conversations that lost
    theirs. `slot_folder` "": slots are not saved. `sleep_s` 0: it never gives its memory back."""

    slots: int
    context_tokens: int
    cache_mib: int
    slot_folder: str = ""
    sleep_s: int = 0


@dataclass(frozen=True, slots=True)
class Fit:
    """`why` is for people; "": there are as many as were wanted. `cache_mib`: what the prompt cache may have."""

    slots: int
    cache_mib: int
    why: str = ""


def fit(wanted: int, context_tokens: int, model: ModelFile, room_bytes: int) -> Fit:
    """Of `wanted` slots of so many tokens as many as fit into `room_bytes`, at least one. 0 bytes: nobody knows the room."""
    slot = model.kv_token_bytes * context_tokens
    if not room_bytes or not slot:
        return Fit(wanted, MOST_CACHE_MIB)
    share = room_bytes * 15 // 16
    fixed = model.bytes + _BASE_BYTES + PREFILL_BATCH * model.vocabulary * _LOGIT_BYTES
    fitting = max(0, share - fixed) // slot
    slots = max(1, min(wanted, fitting))
    rest = max(0, share - fixed - slots * slot)
    cache = min(MOST_CACHE_MIB, rest // 2 // _MIB)
    if fitting >= wanted:
        return Fit(slots, cache)
    return Fit(
        slots,
        cache,
        f"memory: {fitting} of {wanted} slots of {context_tokens} tokens ({_mib(slot)} MiB each) fit beside "
        f"{_mib(fixed)} MiB of weights and buffers into {_mib(share)} MiB",
    )


def _mib(size: int) -> int:
    return round(size / _MIB)
