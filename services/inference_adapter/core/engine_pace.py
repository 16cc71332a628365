"""How fast the engine has been of late, as routers want to know it: what a prompt token costs, how long a slot is held."""

from __future__ import annotations

from typing import Final

from services.inference_adapter.core.first_tokens import FirstTokens

_NEW: Final = 0.1  # weight of each new measurement
# A short prompt's time to the first token is mostly not its tokens'.
_LEAST_TOKENS: Final = 32


class EnginePace:
    """Means over finished engine calls, each new one with a tenth of the weight. 0 before the first."""

    def __init__(self) -> None:
        self.prefill_ms = 0.0
        self.slot_ms = 0.0
        self.first_tokens = FirstTokens()
        # Follows the fastest first tokens of late: no answer can be expected sooner.
        self.least_first_token_s = 0.0

    def ended(self, first_token_s: float, total_s: float, uncached_tokens: int) -> None:
        """A call has ended: seconds from its begin to its first token and to its end; prompt tokens that it had to compute."""
        self.slot_ms = _mean(self.slot_ms, total_s * 1000)
        self.least_first_token_s = min(first_token_s, _mean(self.least_first_token_s, first_token_s))
        if uncached_tokens >= _LEAST_TOKENS:
            self.prefill_ms = _mean(self.prefill_ms, first_token_s * 1000 / uncached_tokens)


def _mean(before: float, new: float) -> float:
    return before + _NEW * (new - before) if before else new
