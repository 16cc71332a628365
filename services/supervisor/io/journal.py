"""What the person at the terminal sees of a mesh."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from rich.console import Console
from rich.status import Status
from rich.text import Text

from services.supervisor.io.health import NOT_YET

_COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue", "bright_cyan", "bright_magenta", "bright_green")
# Without a terminal a long start is told once in this time.
_PLAIN_INTERVAL_S: Final = 5.0


class Journal(Protocol):
    """Where processes and supervisor speak."""

    def line(self, name: str, text: str) -> None:
        """A line that process `name` wrote."""
        ...

    def note(self, text: str) -> None:
        """Something the supervisor did."""
        ...

    def starting(self, name: str, waiting: str) -> None:
        """`name` is starting; `waiting` says what it waits for, if it told."""
        ...

    def ready(self, name: str, after_s: float) -> None:
        """`name` takes work."""
        ...


class Terminal:
    """Prefixed log lines (`adapter-0 | …`), and below them a spinner that says who is still starting.

    Without a terminal, or with TERM=dumb, the spinner is a plain line every 5 s.
    """

    def __init__(self, console: Console, names: list[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._width = max(len(name) for name in [*names, "streamway"])
        self._colours = {name: _COLOURS[index % len(_COLOURS)] for index, name in enumerate(names)}
        self._clock = clock
        self._waiting: dict[str, tuple[float, str]] = {}
        self._told: dict[str, float] = {}
        self._status: Status | None = None

    def line(self, name: str, text: str) -> None:
        prefix = (f"{name:<{self._width}} | ", self._colours.get(name, "white"))
        # soft_wrap: a line stays one line when it is piped into grep.
        self._console.print(Text.assemble(prefix, Text.from_ansi(text)), soft_wrap=True, highlight=False)

    def note(self, text: str) -> None:
        prefix = (f"{'streamway':<{self._width}} | ", "bold")
        self._console.print(Text.assemble(prefix, text), soft_wrap=True, highlight=False)

    def starting(self, name: str, waiting: str) -> None:
        now = self._clock()
        waiting = "" if waiting == NOT_YET else waiting
        since, _ = self._waiting.get(name, (now, ""))
        self._waiting[name] = (since, waiting)
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._spin(now)
        elif now - self._told.setdefault(name, now) >= _PLAIN_INTERVAL_S:
            self._told[name] = now
            self.note(f"{name} is still starting after {now - since:.0f} s{f': {waiting}' if waiting else ''}")

    def ready(self, name: str, after_s: float) -> None:
        self._waiting.pop(name, None)
        self._told.pop(name, None)
        self._spin(self._clock())
        self.note(f"{name} is ready ({after_s:.1f} s)")

    def close(self) -> None:
        """Takes the spinner away."""
        self._waiting.clear()
        self._spin(self._clock())

    def summary(self, rows: list[tuple[str, str]]) -> None:
        """The closing table of a start."""
        self._console.print()
        for label, value in rows:
            self._console.print(Text.assemble((f"  {label:<10}", "dim"), (value, "bold")), soft_wrap=True)
        self._console.print()

    def _spin(self, now: float) -> None:
        if not self._waiting:
            if self._status is not None:
                self._status.stop()
                self._status = None
            return
        text = ", ".join(
            f"{name} {now - since:.0f} s{f' ({waiting})' if waiting else ''}"
            for name, (since, waiting) in self._waiting.items()
        )
        if self._status is None:
            if not self._console.is_terminal:
                return
            self._status = self._console.status("", spinner="dots")
            self._status.start()
        self._status.update(Text(f"starting {text}"))
