"""The invariants of docs/protocol-journal.md, by their numbers there."""

from __future__ import annotations

from collections.abc import Sequence

from streamway.journal.entries import Entry, Kind, decode_events, on_line, parse_entries
from streamway.journal.line import Line
from streamway.lanes.task import TaskCopy
from streamway.valkey import keys
from streamway.valkey.session import Argument, Reply
from tests.support.journal_model.actors import GENERATION, Reader, Worker, World, token_text
from tests.support.journal_model.store import ModelStore

KEY = keys.response(GENERATION)


def channel_of(store: ModelStore) -> list[Entry]:
    """All entries of the channel."""
    return parse_entries(store.ask("XRANGE", KEY, "-", "+"))


def copies_of(store: ModelStore, lanes: Sequence[str]) -> dict[tuple[str, str], TaskCopy]:
    """All task copies in all lanes, read or not."""
    found = {}
    for lane in lanes:
        for id_, fields in store.ask("XRANGE", lane, "-", "+"):
            found[lane, id_.decode()] = TaskCopy.parse(dict(zip(fields[::2], fields[1::2], strict=True)))
    return found


class Watch:
    """Checks what must hold at each step."""

    def __init__(self, world: World, store: ModelStore, workers: Sequence[Worker]) -> None:
        self._world = world
        self._store = store
        self._workers = workers
        self._copies: dict[tuple[str, str], TaskCopy] = {}
        store.on_write = self.written

    def written(self, actor: str, command: Sequence[Argument], reply: Reply) -> None:
        """A write succeeded."""
        if command[0] == "XADD" and command[1] in self._world.lanes:
            self._world.excused = False
            fields = [part.encode() if isinstance(part, str) else str(part).encode() for part in command[3:]]
            copy = TaskCopy.parse(dict(zip(fields[::2], fields[1::2], strict=True)))
            self._copies[str(command[1]), reply.decode()] = copy
        elif command[0] == "XADD" and command[1] == KEY:
            self._appended(str(command[3]))
        elif command[0] == "XDEL":
            self._acknowledged(str(command[1]), [str(part) for part in command[2:]])

    def _appended(self, id_: str) -> None:
        """(9) nothing of a call that knows it is fenced enters the channel."""
        epoch = int(id_.partition("-")[0])
        for worker in self._workers:
            for call in worker.calls:
                if call.stopped and call.writing.channel.begun.epoch == epoch:
                    self._world.problem(f"(9) {id_} entered the channel after its call was stopped")

    def _acknowledged(self, lane: str, entries: list[str]) -> None:
        """(7) an acknowledged copy implies `end`, a newer copy, or no channel. What a lossy store makes of it is (5)."""
        dropped = [self._copies.pop((lane, entry), None) for entry in entries]
        if self._world.lost_writes:
            return
        tail = parse_entries(self._store.ask("XREVRANGE", KEY, "+", "-", "COUNT", 1))
        if not tail or tail[0].kind is Kind.END:
            return
        left = copies_of(self._store, self._world.lanes).values()
        for copy in dropped:
            if copy is not None and not any(other.attempt >= copy.attempt for other in left):
                self._world.problem(
                    f"(7) copy {copy.ref} of attempt {copy.attempt} acknowledged, and nothing else left"
                )

    def lost(self) -> None:
        """The store lost writes. If that took every copy, only a worker that lives can bring the task back."""
        self._world.lost_writes = True
        entries = channel_of(self._store)
        self._copies = copies_of(self._store, self._world.lanes)
        ended = bool(entries) and entries[-1].kind is Kind.END
        if not self._copies and not ended:
            self._world.excused = True

    def step(self) -> None:
        """After each step: a call that is out of doubt has brought its copy back, so the store's loss excuses no more."""
        if not self._world.excused:
            return
        for worker in self._workers:
            for call in worker.calls:
                channel = call.writing.channel
                if worker.alive and channel.running and not channel.in_doubt and worker.wire is not None:
                    self._world.excused = False


def check_end(world: World, store: ModelStore, readers: Sequence[Reader]) -> None:
    """What must hold when everything has come to rest."""
    entries = channel_of(store)
    if not entries:
        if world.promised and not world.lost_writes:
            world.problem("(5) the channel is gone")
        return
    ends = [index for index, entry in enumerate(entries) if entry.kind is Kind.END]
    if len(ends) > 1 or (ends and ends[0] != len(entries) - 1):
        world.problem("(2) something follows the end")
    if not ends and world.promised and not world.excused:
        world.problem("(5) the generation never ends")
    begins = [entry for entry in entries if entry.begin is not None]
    line = begins[-1].begin.line if begins and begins[-1].begin is not None else Line(((0, 1),))
    answer = on_line(entries, line)
    _check_tiles(world, answer)
    _check_text(world, answer)
    if ends:
        shown = [(event.epoch, event.position, _word(event)) for entry in answer for event in decode_events(entry)]
        for reader in readers:
            _check_reader(world, reader, shown)


def _word(event: object) -> str:
    return event.token.text or event.WhichOneof("event") or ""  # type: ignore[attr-defined]


def _check_tiles(world: World, answer: Sequence[Entry]) -> None:
    """(1) positions on the line tile."""
    last = 0
    for entry in answer:
        if entry.first != last + 1:
            world.problem(f"(1) entry {entry.id} starts at {entry.first} after {last}")
        last = entry.last
        positions = [event.position for event in decode_events(entry)]
        if positions != list(range(entry.first, entry.last + 1)):
            world.problem(f"(1) entry {entry.id} holds positions {positions}")


def _check_text(world: World, answer: Sequence[Entry]) -> None:
    """(3) each token was made from the text before it."""
    prefix = ""
    for entry in answer:
        for event in decode_events(entry):
            if event.WhichOneof("event") == "token":
                call = int(event.token.text.partition(".")[0])
                if event.token.text != token_text(call, prefix):
                    world.problem(f"(3) token {event.epoch}-{event.position} continues another text")
                prefix += event.token.text


def _check_reader(world: World, reader: Reader, shown: list[tuple[int, int, str]]) -> None:
    """(3) what a reader has is the answer; or it was told why not."""
    if reader.text == shown or any(what.startswith("not recovered") for what in reader.told):
        return
    if reader.behind and world.may_differ:
        return
    world.problem(f"(3) {reader.name} has {reader.text}, the answer is {shown}")
