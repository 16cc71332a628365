"""`streamway chat`: a conversation in the terminal, over the router's `Generate` and `Resume`."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from services.supervisor.commands.mesh import Mesh
from services.supervisor.core.answer import Answer
from services.supervisor.io.asking import Asker, BrokenOff
from services.supervisor.io.chat_file import ChatFile, Kept, Turn
from services.supervisor.io.printing import Printer, printer
from streamway.errors import InvalidArgument, Malformed, StreamwayError
from streamway.journal.cursor import Cursor
from streamway.runtime.process import StartError
from streamway.v1 import common_pb2

_HELP: Final = "/new begins anew, /model NAME changes the model, Ctrl-C stops an answer, Ctrl-D ends"
_ANSWER_BEGINS_S: Final = 5.0
# So long nobody may let a broken answer be read on.
PATIENCE_S: Final = 60.0
_KEEP_EACH_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line says of the conversation."""

    model: str | None = None
    max_tokens: int | None = None
    # Go on with the last chat of this machine.
    resume: bool = False
    # Read this generation, "ID" or "ID@CURSOR".
    generation: str | None = None
    plain: bool = False


def talk(question: str | None, wishes: Wishes, options: Mapping[str, str | int | Path | None]) -> None:
    """One answer when `question` is given ("-": read it from standard input), otherwise a conversation until Ctrl-D."""
    mesh = Mesh(options)
    if question == "-":
        question = sys.stdin.read()
    if question is not None and not question.strip():
        raise InvalidArgument("question", "is empty")
    file = ChatFile(mesh.settings.data_dir.expanduser())
    asked_for = _named(wishes.generation) if wishes.generation else None
    with asyncio.Runner() as runner:
        chat = runner.run(_connect(mesh, wishes, file))
        try:
            if asked_for is not None:
                runner.run(chat.read(asked_for))
            elif question is not None:
                if chat.unread is not None:
                    runner.run(chat.read(chat.unread))
                runner.run(chat.ask(question))
            else:
                _converse(runner, chat)
        except KeyboardInterrupt:
            sys.exit(130)
        except BrokenOff:
            raise StartError(chat.way_back) from None


def _converse(runner: asyncio.Runner, chat: Chat) -> None:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - gives input() history and editing
    chat.note(f"{chat.model} at {chat.address}. {_HELP}")
    if chat.unread is not None:
        _safely(runner, chat, chat.read(chat.unread))
    while True:
        try:
            line = input("› ").strip()
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
            continue
        if line.startswith("/"):
            chat.command(line)
        elif line:
            _safely(runner, chat, chat.ask(line))


def _safely(runner: asyncio.Runner, chat: Chat, work: Coroutine[Any, Any, None]) -> None:
    """Runs it; whatever becomes of an answer, the conversation goes on."""
    try:
        runner.run(work)
    except KeyboardInterrupt:  # the runner has cancelled the answer, and its generation with it
        chat.note("stopped")
    except BrokenOff:
        chat.trouble(chat.way_back)
    except StreamwayError as problem:
        chat.trouble(problem.message)


@dataclass(slots=True)
class _Timing:
    """When tokens came, in seconds on the monotonic clock."""

    asked: float
    first: float = 0.0
    last: float = 0.0
    units: int = 0

    def count(self, units: int) -> None:
        self.last = time.monotonic()
        self.first = self.first or self.last
        self.units += units

    def told(self, answer: Answer) -> str:
        parts = [f"first token {(self.first - self.asked) * 1000:.0f} ms"] if self.units else []
        if self.units > 1 and self.last > self.first:
            parts.append(f"{(self.units - 1) / (self.last - self.first):.1f} tokens/s")
        parts.append(f"{self.units} tokens")
        if answer.worker:
            parts.append(answer.worker)
        if answer.cache in ("exact", "semantic"):
            parts.append("from the cache")
        if answer.cost is not None:
            parts.append(f"cost {answer.cost:.6f}")
        return " · ".join(parts)


class Chat:
    """A conversation with one model. What was said is sent with each question, and kept in `file` with the answer's cursor."""

    def __init__(self, asker: Asker, models: list[str], model: str, wishes: Wishes, file: ChatFile) -> None:
        self.model = model
        self.unread: Answer | None = None
        self._asker = asker
        self._models = models
        self._wishes = wishes
        self._file = file
        self._turns: tuple[Turn, ...] = ()
        self._question = ""
        # Who only reads a generation has no chat that could take the place of the last one.
        self._keeps = wishes.generation is None
        self._console = Console(stderr=True, highlight=False)
        self._screen = Console(highlight=False)

    @property
    def address(self) -> str:
        """The router it talks to."""
        return self._asker.address

    @property
    def way_back(self) -> str:
        """What to do after an answer was broken off."""
        return (
            f"no router has let the answer be read on for {PATIENCE_S:g} s; it may still be running: `streamway chat --resume`"
            " goes on behind the last word shown"
        )

    def take_up(self, kept: Kept) -> None:
        """Goes on with what was kept: the conversation, and the answer that was not read to its end."""
        self._turns = kept.turns
        if kept.generation:
            self._question = kept.question
            self.unread = Answer(kept.generation, kept.epoch, kept.position, kept.shown)

    async def ask(self, question: str) -> None:
        """Shows the answer as it comes. Raises the StreamwayError it ended with, and BrokenOff."""
        self._question, answer = question, Answer()
        messages = [*self._turns, Turn("user", question)]
        request = common_pb2.GenerationRequest(
            model=self.model,
            messages=[common_pb2.Message(role=turn.role, content=turn.content) for turn in messages],
            limits=common_pb2.Limits(max_tokens=self._wishes.max_tokens),
        )
        await self._show(answer, request)

    async def read(self, answer: Answer) -> None:
        """Shows what was seen of an answer already, and goes on behind it."""
        self.unread = None
        await self._show(answer, None)

    async def _show(self, answer: Answer, request: common_pb2.GenerationRequest | None) -> None:
        timing, told, kept_at = _Timing(time.monotonic()), 0, 0.0
        seen = answer.units
        with self._printer() as shown:

            def arrived(text: str) -> None:
                nonlocal told, kept_at, seen
                for note in answer.notes[told:]:
                    self.note(note)
                told = len(answer.notes)
                if not text and not answer.position:
                    self.note("the store lost a part of this answer; again from its beginning:")
                    shown.anew()
                shown.piece(text)
                timing.count(max(answer.units - seen, 0))
                seen = answer.units
                if time.monotonic() - kept_at >= _KEEP_EACH_S:
                    kept_at = time.monotonic()
                    self._keep(answer)

            if answer.text:
                shown.piece(answer.text)
            try:
                if request is not None:
                    await self._asker.ask(request, answer, arrived)
                else:
                    await self._asker.read_on(answer, arrived)
            except BrokenOff:
                self._keep(answer)
                self.unread = answer
                raise
            except BaseException:
                # Also what was stopped or failed: the model may go on from it.
                self._said(answer)
                raise
        self._said(answer)
        if self._console.is_terminal:
            self.note(timing.told(answer))

    def command(self, line: str) -> None:
        """`/new`, `/model NAME` or help."""
        name, _, rest = line.partition(" ")
        if name == "/new":
            self._turns = ()
            self.note("a new conversation")
        elif name == "/model" and rest.strip():
            self.model = rest.strip()
            self.note(f"now {self.model}; known: {', '.join(self._models)}")
        else:
            self.note(_HELP)

    def note(self, text: str) -> None:
        """Something about the conversation; on standard error, so that answers can be piped."""
        self._console.print(text, style="dim", markup=False)

    def trouble(self, text: str) -> None:
        """Something went wrong with an answer."""
        self._console.print(text, style="red", markup=False)

    def _printer(self) -> Printer:
        return printer(self._screen, plain=self._wishes.plain)

    def _said(self, answer: Answer) -> None:
        if answer.text and self._question:
            self._turns = (*self._turns, Turn("user", self._question), Turn("assistant", answer.text))
        self._question = ""
        if self._keeps:
            self._file.write(Kept(self.address, self.model, self._turns))

    def _keep(self, answer: Answer) -> None:
        if self._keeps:
            cursor = (answer.epoch, answer.position)
            said = (self._turns, self._question, answer.generation, answer.text)
            self._file.write(Kept(self.address, self.model, *said, *cursor))


def _named(text: str) -> Answer:
    """ "ID" or "ID@CURSOR" as an answer to be read on."""
    generation, _, after = text.partition("@")
    try:
        cursor = Cursor.parse(after or "0-0")
    except Malformed:
        raise StartError(f"--generation {text!r} is not ID or ID@EPOCH-POSITION") from None
    return Answer(generation, cursor.epoch, cursor.position)


async def _connect(mesh: Mesh, wishes: Wishes, file: ChatFile) -> Chat:
    """A conversation as wished for. Raises StartError when no router answers, or there is nothing to go on with."""
    kept = file.read() if wishes.resume else None
    if wishes.resume and kept is None:
        raise StartError(f"no chat is kept in {mesh.settings.data_dir}; begin one with `streamway chat`")
    asker = Asker(mesh.routers, mesh.shared, mesh.metadata, PATIENCE_S)
    names = await asker.models(_ANSWER_BEGINS_S)
    model = wishes.model or (kept.model if kept is not None else "") or next(iter(names), "")
    if not model:
        raise StartError(f"the router at {asker.address} knows no model yet; see `streamway status`")
    chat = Chat(asker, names, model, wishes, file)
    if kept is not None:
        chat.take_up(kept)
    return chat
