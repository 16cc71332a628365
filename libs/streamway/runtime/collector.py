"""The interpreter's search for cycles, for a process that serves streams.

What a token leaves behind lives as long as its generation and is freed by its reference count. The search finds next to nothing
and still walks over all of it: at a thousand streams it took a twentieth of each process, and a full one stopped all streams
for a tenth of a second.
"""

from __future__ import annotations

import gc
from typing import Final

# New objects between two searches among the youngest, and how many of those go before one among the older ones. The usual
# 700, 10, 10 search a thousand streams several times a second.
_THRESHOLDS: Final = (10_000, 20, 50)


def settle() -> None:
    """Call it once a service has started: what exists now is never searched again, and what comes is searched less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
