"""How an answer gets onto the terminal: as it comes, or as Markdown whose finished blocks stay and whose last one grows."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Final, Protocol, Self

from markdown_it import MarkdownIt
from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown

from services.supervisor.core.markdown_blocks import split

# What a model says is text: it must not move the cursor or set colours.
PRINTABLE: Final = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)])
_A_SECOND: Final = 8
_WIDE: Final = 220


class Printer(Protocol):
    """Shows one answer. Used as a context: what is open is finished on the way out."""

    def piece(self, text: str) -> None:
        """The next text of it."""
        ...

    def anew(self) -> None:
        """What was shown does not count: the text begins again."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Plain:
    """Characters as they come: for pipes, files and terminals that can do no more."""

    def __init__(self) -> None:
        self._open = False

    def piece(self, text: str) -> None:
        """See Printer."""
        self._open = self._open or bool(text)
        sys.stdout.write(text.translate(PRINTABLE))
        sys.stdout.flush()

    def anew(self) -> None:
        """See Printer."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open:
            print(flush=True)
        self._open = False


class Pretty:
    """Markdown. A block is printed for good when it cannot change any more, so that a long answer scrolls as text does."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rest = ""
        self._live: Live | None = None

    def piece(self, text: str) -> None:
        """See Printer."""
        done, self._rest = split(self._rest + text.translate(PRINTABLE))
        if self._live is None:
            return
        if done:
            # Above the live part; it stays.
            self._live.console.print(markdown(done))
        self._live.update(markdown(self._rest))

    def anew(self) -> None:
        """See Printer."""
        self._finish()
        self.__enter__()

    def __enter__(self) -> Self:
        # Of a block that is higher than the terminal the end is cut while it grows, and all of it printed at last.
        self._live = Live(
            console=self._console, refresh_per_second=_A_SECOND, transient=True, vertical_overflow="ellipsis"
        )
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish()

    def _finish(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._rest.strip():
            self._console.print(markdown(self._rest))
        self._rest = ""


def markdown(text: str) -> Markdown:
    """Text of a model as Markdown: HTML in it is text like any other, and links show where they lead."""
    made = Markdown("", hyperlinks=False)
    made.markup = text
    made.parsed = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).parse(text)
    return made


def printer(console: Console, *, plain: bool) -> Printer:
    """What this terminal can show. `plain` asks for characters as they come."""
    if plain or not console.is_terminal or console.is_dumb_terminal:
        return Plain()
    return Pretty(console)


def table_console() -> Console:
    """For tables: where nobody said how wide, and no terminal does, wide enough that a script sees whole names."""
    unknown = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(highlight=False, width=_WIDE if unknown else None)
