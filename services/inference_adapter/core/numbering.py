"""Numbers what an engine makes, and merges neighbouring pieces until they are flushed.

    engine:      started   "Hel"   "lo"   " wor"   "ld"  stop     usage
    position:        2       3       4       5       6             7
    flushed as:   started  token  └── token 4…6, units 3 ──┘   finished

A piece gets its position when it comes and keeps it. The ranges of the events tile: 1 is `accepted`, made by whoever accepted
the request. Per-token path: pieces are kept as plain text until a flush, and an event is bytes from the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from google.rpc import status_pb2

from services.inference_adapter.core.delivery import Kept
from services.inference_adapter.core.wire import epoch_head, plain_token
from streamway.journal.line import Line
from streamway.lanes.task import EarlierCall
from streamway.v1 import common_pb2


class Numbering:
    """Numbers the events of one generation. `epoch` 0 until an engine call begins.

    A merged event holds pieces of one choice that follow each other; a piece with `raw_delta` is never merged. `finish_reason`
    rides with the last unflushed piece of its choice, and has a position of its own only when there is none.
    """

    __slots__ = (
        "_begun",
        "_choice",
        "_ended",
        "_first_index",
        "_first_position",
        "_head",
        "_ids",
        "_indices",
        "_made",
        "_run_reason",
        "_texts",
        "_truncated",
        "epoch",
        "finish_reason",
        "pending_units",
        "position",
        "units",
    )

    def __init__(self, position: int = 1) -> None:
        self.epoch = 0
        # What its events begin with as bytes.
        self._head = epoch_head(0)
        # Last number given.
        self.position = position
        # Where each engine call began, beside a journal that says it.
        self._begun: tuple[tuple[int, int], ...] = ()
        # Token units that were flushed, and those that were not yet.
        self.units = 0
        self.pending_units = 0
        # Why choice 0 ended; empty until it did.
        self.finish_reason = ""
        # Choices that have ended, and why the rest was cut.
        self._ended: set[int] = set()
        self._truncated = ""
        # Events that are closed but not flushed, in order.
        self._made: list[Kept] = []
        # Tokens counted so far in each choice.
        self._indices: dict[int, int] = {}
        # The open run: neighbouring pieces of one choice. Empty when `_texts` is.
        self._texts: list[str] = []
        self._ids: list[int] = []
        self._choice = 0
        self._first_position = 0
        self._first_index = 0
        self._run_reason = ""

    def accepted(self, accepted: common_pb2.Accepted) -> None:
        """Position 1 of a generation that nobody accepted before."""
        self._add(common_pb2.Event(position=self.position, accepted=accepted))

    def resume(self, epoch: int, position: int, tokens: Mapping[int, int]) -> None:
        """Goes on behind a `begin` at `position`, which the journal has made. `tokens`: of each choice, so far."""
        self.epoch = epoch
        self._head = epoch_head(epoch)
        self.position = position
        self._indices = dict(tokens)

    def retried(self, before: Sequence[EarlierCall]) -> None:
        """Goes on behind calls that made no token, and of which nothing is kept but what the task says."""
        for call in before:
            if call.epoch:
                self.started(call.epoch, call.worker, 0)

    def started(self, epoch: int, worker: str, queued_ms: int) -> None:
        """The engine call has begun under `epoch`."""
        self.epoch = epoch
        self._head = epoch_head(epoch)
        self.position += 1
        self._begun = (*self._begun, (epoch, self.position))
        started = common_pb2.Started(worker=worker, queued_ms=queued_ms)
        if len(self._begun) > 1:
            started.line = str(Line(((0, 1), *self._begun)))
        self._add(common_pb2.Event(epoch=epoch, position=self.position, started=started))

    def piece(
        self, choice: int, text: str, raw_delta: bytes = b"", finish_reason: str = "", token_ids: tuple[int, ...] = ()
    ) -> None:
        """One chunk of the answer."""
        if finish_reason and self._ends(choice, finish_reason, alone=not (text or raw_delta or token_ids)):
            return
        texts = self._texts
        if texts and (raw_delta or choice != self._choice or self._run_reason):
            self._close_run()
            texts = self._texts
        position = self.position = self.position + 1
        self.pending_units += 1
        if not texts:
            self._choice = choice
            self._first_position = position
            self._first_index = self._indices.get(choice, 0)
        texts.append(text)
        if text and not (token_ids or finish_reason or raw_delta):
            # Nearly every one.
            self._indices[choice] = self._indices.get(choice, 0) + 1
            return
        # A chunk may carry several tokens, and one that only ends its choice carries none.
        count = len(token_ids) or (1 if text or raw_delta else 0)
        if count:
            self._indices[choice] = self._indices.get(choice, 0) + count
        if token_ids:
            self._ids += token_ids
        if finish_reason:
            self._run_reason = finish_reason
        if raw_delta:
            self._close_run(raw_delta)

    def several(self, choice: int, texts: Sequence[str]) -> None:
        """Chunks that are text and nothing else; none of them is empty."""
        if self._texts and (choice != self._choice or self._run_reason):
            self._close_run()
        count, index = len(texts), self._indices.get(choice, 0)
        if not self._texts:
            self._choice = choice
            self._first_position = self.position + 1
            self._first_index = index
        self.position += count
        self.pending_units += count
        self._texts += texts
        self._indices[choice] = index + count

    @property
    def tokens(self) -> int:
        """Of all choices so far, as far as is known."""
        return sum(self._indices.values())

    def cut(self, why: str, choices: int) -> None:
        """Ends every choice that has not ended, of as many as were asked for, as one that has reached its length."""
        self._close_run()
        self._truncated = why
        for choice in range(max(choices, *(number + 1 for number in self._indices), 1)):
            if choice not in self._ended:
                self.piece(choice, "", finish_reason="length")

    def finished(self, usage: common_pb2.Usage | None) -> None:
        """The terminal event of a generation that ended well."""
        self._close_run()
        self.position += 1
        finished = common_pb2.Finished(
            finish_reason=self.finish_reason or "stop", usage=usage, truncated=self._truncated
        )
        self._add(common_pb2.Event(epoch=self.epoch, position=self.position, finished=finished))

    def failed(self, status: status_pb2.Status) -> None:
        """The terminal event of one that did not."""
        self._close_run()
        self.position += 1
        told = common_pb2.Error(status=status, delivered_until=self.position - 1)
        self._add(common_pb2.Event(epoch=self.epoch, position=self.position, error=told))

    def take(self) -> list[Kept]:
        """The events since the last call, in order. They are the caller's."""
        if self._texts:
            self._close_run()
        made = self._made
        self._made = []
        self.units += self.pending_units
        self.pending_units = 0
        return made

    def _ends(self, choice: int, finish_reason: str, *, alone: bool) -> bool:
        """Notes that a choice has ended. True: with a piece that is there already, and nothing more is to be told."""
        self._ended.add(choice)
        if choice == 0:
            self.finish_reason = finish_reason
        return alone and self._ride(choice, finish_reason)

    def _ride(self, choice: int, finish_reason: str) -> bool:
        """Puts a lone finish reason on the last unflushed piece of its choice; False when there is none."""
        if self._texts and self._choice == choice:
            self._run_reason = finish_reason
            return True
        for at in reversed(range(len(self._made))):
            event = common_pb2.Event.FromString(self._made[at][1])
            if event.HasField("token") and event.token.choice == choice:
                self._end_choice(event.token, finish_reason)
                self._made[at] = event.position, event.SerializeToString()
                return True
        return False

    def _add(self, event: common_pb2.Event) -> None:
        self._made.append((event.position, event.SerializeToString()))

    def _close_run(self, raw_delta: bytes = b"") -> None:
        texts = self._texts
        if not texts:
            return
        units = len(texts)
        text = texts[0] if units == 1 else "".join(texts)
        self._texts = []
        if text and not (self._choice or self._ids or raw_delta or self._run_reason):
            first = self._first_position if units > 1 else 0
            raw = plain_token(self._head, first, self.position, text, self._first_index, units)
            self._made.append((self.position, raw))
            return
        event = common_pb2.Event(epoch=self.epoch, position=self.position)
        token = event.token
        token.text = text
        token.units = units
        if units > 1:
            event.first_position = self._first_position
        if self._choice:
            token.choice = self._choice
        if self._first_index:
            token.first_token_index = self._first_index
        if self._ids:
            token.token_ids.extend(self._ids)
            self._ids = []
        if raw_delta:
            token.raw_delta = raw_delta
        if self._run_reason:
            self._end_choice(token, self._run_reason)
            self._run_reason = ""
        self._add(event)

    def _end_choice(self, token: common_pb2.Token, finish_reason: str) -> None:
        token.choice_finished.finish_reason = finish_reason
        if self._truncated:
            token.choice_finished.truncated = self._truncated
