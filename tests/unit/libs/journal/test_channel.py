"""The channel machine, event by event."""

from __future__ import annotations

import pytest

from streamway.journal import signals as s
from streamway.journal.channel import Begun, Channel, ProtocolViolation
from streamway.journal.cursor import Cursor
from streamway.journal.entries import Begin, Entry, Kind
from streamway.journal.line import Line
from streamway.journal.transitions import TRANSITIONS, State
from streamway.lanes.task import TaskCopy

OLD, MINE, NEW = 1 << 20 | 9, 2 << 20 | 4, 3 << 20 | 1
LINE = Line(((0, 1), (OLD, 2), (MINE, 6)))
ACCEPTED = Entry(0, 1, 1, Kind.ACCEPTED, b"")
OLD_BEGIN = Entry(OLD, 2, 2, Kind.BEGIN, b"", Begin("r1", "w0", Line(LINE.segments[:2])))
OLD_TOKENS = Entry(OLD, 3, 5, Kind.TOKENS, b"old")
BEGIN = Entry(MINE, 6, 6, Kind.BEGIN, b"", Begin("r2", "w1", LINE, "w0"))
ONE = Entry(MINE, 7, 8, Kind.TOKENS, b"one")
TWO = Entry(MINE, 9, 9, Kind.TOKENS, b"two")
END = Entry(MINE, 10, 10, Kind.END, b"end")
COPY = TaskCopy("g", 2, "r2")
PLACE = s.Place("lane", "5-0")
FINISH = (s.Expire(300_000), s.Acknowledge((PLACE,)))


@pytest.fixture
def channel() -> Channel:
    return Channel(Begun(COPY, PLACE, (ACCEPTED, OLD_BEGIN, OLD_TOKENS), BEGIN), 0.0)


def _feed(channel: Channel, *events: s.Event, now: float = 0.0) -> list[s.Effect]:
    """The effects of the last event."""
    effects: list[s.Effect] = []
    for event in events:
        effects = list(channel.receive(event, now))
    return effects


def _verified(channel: Channel, tail: Cursor) -> list[s.Effect]:
    """Through doubt, with the copy in place."""
    assert _feed(channel, s.Connected()) == [s.ReadTail()]
    assert _feed(channel, s.TailRead(tail)) == [s.ReadCopy(PLACE, "r2")]
    return _feed(channel, s.CopyRead(True))


def test_entries_are_written_at_once_and_confirmed_in_order(channel: Channel) -> None:
    assert _feed(channel, ONE) == [s.Write((ONE,))]
    assert _feed(channel, TWO) == [s.Write((TWO,))]
    assert _feed(channel, s.APPENDED) == [s.Confirmed(8)]
    assert _feed(channel, s.APPENDED) == [s.Confirmed(9)]


def test_a_confirmed_end_is_acknowledged_and_then_finished(channel: Channel) -> None:
    _feed(channel, ONE, TWO, END, s.APPENDED, s.APPENDED)
    assert _feed(channel, s.APPENDED) == [s.Confirmed(10), *FINISH]
    assert not channel.running
    assert _feed(channel, s.Acknowledged()) == [s.Finished()]
    assert channel.state is State.DONE


def test_after_a_break_nothing_is_written_before_the_channel_was_verified(channel: Channel) -> None:
    _feed(channel, ONE, s.Lost())
    assert _feed(channel, TWO) == []
    assert channel.in_doubt
    assert _verified(channel, ONE.id) == [s.Confirmed(8), s.Write((TWO,))]
    assert not channel.in_doubt


def test_what_did_not_arrive_is_written_again_as_it_was_cut(channel: Channel) -> None:
    _feed(channel, ONE, TWO, s.Lost())
    assert _verified(channel, BEGIN.id) == [s.Write((ONE, TWO))]


def test_a_tail_that_the_store_lost_is_written_again_and_not_confirmed_twice(channel: Channel) -> None:
    _feed(channel, ONE, s.APPENDED, TWO, s.APPENDED, s.Lost())
    assert _verified(channel, BEGIN.id) == [s.Write((ONE, TWO))]
    assert channel.confirmed == 6
    assert _feed(channel, s.APPENDED) == []
    assert _feed(channel, s.APPENDED) == []
    assert channel.confirmed == 9


def test_a_refused_append_proves_nothing(channel: Channel) -> None:
    assert _feed(channel, ONE, TWO, s.Refused()) == [s.ReadTail()]
    assert _feed(channel, s.Refused()) == [], "the reply to TWO, sent before"
    _feed(channel, s.TailRead(TWO.id))
    assert _feed(channel, s.CopyRead(True)) == [s.Confirmed(9)]


def test_a_verification_that_is_lost_starts_over(channel: Channel) -> None:
    _feed(channel, ONE, s.Lost(), s.Connected(), s.TailRead(BEGIN.id), s.Lost())
    assert _verified(channel, BEGIN.id) == [s.Write((ONE,))]


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (s.TailRead(None), s.StopReason.EXPIRED),
        (s.TailRead(Cursor(NEW, 7)), s.StopReason.FENCED),
        (s.TailRead(Cursor(OLD, 7), ended=True), s.StopReason.ENDED),
    ],
)
def test_a_call_that_may_write_no_more_stops_before_it_touches_the_lane(
    channel: Channel, tail: s.TailRead, reason: s.StopReason
) -> None:
    assert _feed(channel, ONE, s.Lost(), s.Connected(), tail) == [s.Stop(reason)]
    assert _feed(channel, TWO) == [], "one flush may be under way"
    assert not channel.running


def test_a_lost_copy_is_added_again_and_that_one_is_acknowledged(channel: Channel) -> None:
    _feed(channel, ONE, s.Lost(), s.Connected(), s.TailRead(ONE.id))
    assert _feed(channel, s.CopyRead(False)) == [s.AddCopy("lane", COPY)]
    assert _feed(channel, s.CopyAdded("8-0")) == [s.Confirmed(8)]
    effects = _feed(channel, TWO, END, s.APPENDED, s.APPENDED)
    assert effects[-1] == s.Acknowledge((s.Place("lane", "8-0"),))


def test_another_entry_of_the_same_copy_is_acknowledged_too(channel: Channel) -> None:
    other = s.Place("lane", "6-0")
    _feed(channel, s.CopySeen(other), s.CopySeen(PLACE))
    effects = _feed(channel, ONE, TWO, END, s.APPENDED, s.APPENDED, s.APPENDED)
    assert effects[-1] == s.Acknowledge((other, PLACE))


def test_a_lost_begin_is_restored_with_what_came_before_and_after(channel: Channel) -> None:
    _feed(channel, ONE, s.APPENDED, s.Lost())
    assert _verified(channel, OLD_BEGIN.id) == [s.ReadChannel()]
    present = [ACCEPTED.id, OLD_BEGIN.id]
    assert _feed(channel, s.ChannelRead(present)) == [s.Restore(OLD_BEGIN.id, [OLD_TOKENS, BEGIN, ONE])]
    assert _feed(channel, TWO) == []
    assert _feed(channel, s.Restored(True)) == [s.Write((TWO,))]
    assert channel.confirmed == 8


def test_a_restore_that_found_another_tail_is_verified(channel: Channel) -> None:
    _feed(channel, s.Lost())
    _verified(channel, OLD_TOKENS.id)
    _feed(channel, s.ChannelRead([ACCEPTED.id, OLD_BEGIN.id, OLD_TOKENS.id]))
    assert _feed(channel, s.Restored(False)) == [s.ReadTail()]


def test_a_line_that_another_call_has_overtaken_cannot_be_restored(channel: Channel) -> None:
    _feed(channel, s.Lost())
    _verified(channel, Cursor(OLD + 1, 4))
    present = [ACCEPTED.id, OLD_BEGIN.id, Cursor(OLD + 1, 3), Cursor(OLD + 1, 4)]
    assert _feed(channel, s.ChannelRead(present)) == [s.Stop(s.StopReason.FENCED)]


def test_a_break_before_the_acknowledgement_was_answered_asks_for_the_end_first(channel: Channel) -> None:
    _feed(channel, ONE, TWO, END, s.APPENDED, s.APPENDED, s.APPENDED, s.Lost())
    assert _feed(channel, s.Connected()) == [s.ReadTail()]
    assert _feed(channel, s.TailRead(END.id, ended=True)) == [*FINISH]


def test_an_end_that_the_store_lost_is_not_acknowledged(channel: Channel) -> None:
    _feed(channel, ONE, TWO, END, s.APPENDED, s.APPENDED, s.APPENDED, s.Lost())
    assert _verified(channel, TWO.id) == [s.Write((END,))]
    assert _feed(channel, s.APPENDED) == [*FINISH]


def test_a_store_that_is_full_is_asked_again_later(channel: Channel) -> None:
    assert _feed(channel, ONE, s.AppendFailed()) == [s.ConnectLater()]
    assert _verified(channel, BEGIN.id) == [s.Write((ONE,))]


def test_silence_is_told_once_until_something_is_confirmed(channel: Channel) -> None:
    assert _feed(channel, s.Tick(), now=9.0) == [], "nothing waits"
    _feed(channel, ONE, TWO, now=10.0)
    assert _feed(channel, s.Tick(), now=10.04) == []
    assert _feed(channel, s.Tick(), now=10.06) == [s.Unanswered(6)]
    assert _feed(channel, s.Tick(), now=10.2) == []
    _feed(channel, s.APPENDED, now=10.3)
    assert _feed(channel, s.Tick(), now=10.32) == []
    assert _feed(channel, s.Tick(), now=10.4) == [s.Unanswered(8)]


def test_the_time_to_live_is_renewed_at_most_once_a_minute(channel: Channel) -> None:
    assert _feed(channel, ONE, now=59.0) == [s.Write((ONE,))]
    assert _feed(channel, TWO, now=61.0) == [s.Write((TWO,)), s.Expire(600_000)]
    _feed(channel, s.APPENDED, s.APPENDED, now=61.0)
    assert _feed(channel, s.Tick(), now=100.0) == []
    assert _feed(channel, s.Tick(), now=125.0) == [s.Expire(600_000)]


def test_an_entry_that_does_not_follow_is_a_bug_of_the_caller(channel: Channel) -> None:
    with pytest.raises(ProtocolViolation):
        channel.receive(TWO, 0.0)
    _feed(channel, ONE, TWO, END)
    with pytest.raises(ProtocolViolation):
        channel.receive(Entry(MINE, 11, 11, Kind.TOKENS, b""), 0.0)


def test_every_transition_names_a_method() -> None:
    assert set(TRANSITIONS) == set(State)
    for row in TRANSITIONS.values():
        assert all(callable(getattr(Channel, name)) for name in row.values())


def test_an_event_out_of_place_is_a_bug_of_the_shell(channel: Channel) -> None:
    with pytest.raises(ProtocolViolation, match="CopyRead while steady"):
        channel.receive(s.CopyRead(True), 0.0)


def _long(channel: Channel, entries: int) -> None:
    for number in range(entries):
        _feed(channel, Entry(MINE, 7 + number, 7 + number, Kind.TOKENS, b"x" * 800), s.APPENDED)


@pytest.fixture
def small() -> Channel:
    return Channel(Begun(COPY, PLACE, (ACCEPTED, OLD_BEGIN, OLD_TOKENS), BEGIN), 0.0, most_bytes=10_000)


def test_f5_a_long_answer_is_not_kept_whole(small: Channel) -> None:
    _long(small, 1_000)
    assert small.kept <= 11
    assert small.begun.before == ()
    assert (small.position, small.confirmed) == (1_006, 1_006)


def test_what_is_not_confirmed_is_kept_however_much_it_is(small: Channel) -> None:
    for number in range(100):
        _feed(small, Entry(MINE, 7 + number, 7 + number, Kind.TOKENS, b"x" * 800))
    assert small.unconfirmed_bytes == 100_000
    assert small.kept == 101
    assert _feed(small, *[s.APPENDED] * 100) == [s.Confirmed(106)]


def test_a_store_that_lost_less_than_is_kept_gets_it_again(small: Channel) -> None:
    _long(small, 100)
    _feed(small, s.Lost())
    effects = _verified(small, Cursor(MINE, 104))
    assert [entry.last for effect in effects if isinstance(effect, s.Write) for entry in effect.entries] == [105, 106]


def test_a_store_that_lost_more_than_is_kept_stops_the_call(small: Channel) -> None:
    _long(small, 100)
    _feed(small, s.Lost())
    assert _verified(small, Cursor(MINE, 20)) == [s.Stop(s.StopReason.LOST)]


def test_a_begin_that_is_lost_and_not_kept_stops_the_call(small: Channel) -> None:
    _long(small, 100)
    _feed(small, s.Lost(), s.Connected(), s.TailRead(OLD_TOKENS.id))
    assert _feed(small, s.CopyRead(True)) == [s.ReadChannel()]
    assert _feed(small, s.ChannelRead([ACCEPTED.id, OLD_BEGIN.id, OLD_TOKENS.id], False)) == [s.Stop(s.StopReason.LOST)]
