"""How often a worker looks at what is late: deadlines, silent engines, answers that nobody reads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

OFTENEST_S: Final = 0.1
RAREST_S: Final = 1.0
# A look at a thousand generations takes 2.3 ms, ten times a second: as much as the tokens of thirty streams.
SHARE: Final = 0.01


async def look_again_and_again(look: Callable[[], None]) -> None:
    """Calls `look` ten times a second; less often, but once a second, where it would take more than a hundredth of a core."""
    took_s = 0.0
    while True:
        await asyncio.sleep(min(max(OFTENEST_S, took_s / SHARE), RAREST_S))
        began_s = time.thread_time()
        look()
        took_s = time.thread_time() - began_s
