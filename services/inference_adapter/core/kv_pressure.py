"""When a worker's KV cache is so full that no prefill may begin.

    used        ____________
    0.92 ......|............|\\.................  for 10 s: pressed
    0.87 ......|............|..\\_______________  below: released at once
    pressed          ████████████

One that begins with the cache full makes the engine put others aside, whose prompts it computes again later. An engine that
says that it has done so need not be full for ten seconds: it is pressed at once.
"""

from __future__ import annotations


class KVPressure:
    """Pressed when `mark` of the cache (a share, 0 … 1) was in use for `hold_s` on end, until less than `release` is. At a
    mark of 1 never. Times are monotonic seconds."""

    def __init__(self, mark: float, release: float, hold_s: float) -> None:
        self._mark = mark
        self._release = release
        self._hold_s = hold_s
        self._since: float | None = None
        self.pressed = False

    def look(self, used: float | None, now: float, put_aside: int = 0) -> bool:
        """Takes a reading; True when `pressed` is another than before. None: the engine does not tell, and nothing is held up.

        `put_aside`: sequences that the engine has put aside since the last reading.
        """
        before, share = self.pressed, used or 0.0
        if self._mark >= 1 or share < self._mark:
            self._since = None
        elif self._since is None:
            self._since = now
        if put_aside and self._mark < 1:
            self.pressed = True
        elif before:
            self.pressed = share >= self._release
        else:
            self.pressed = self._since is not None and now - self._since >= self._hold_s
        return self.pressed != before
