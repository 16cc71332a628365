"""The journal: each generation's response channel, written so that a token once delivered is never lost or repeated.

    router    accept                     opens the channel
    adapter   begin_call, JournalWriter  begins an engine call, writes its entries
    edge      read_channel, Merger       resumes from a cursor; Follower: what comes after
    router    Reclaimer                  moves the work of workers that are gone

`docs/protocol-journal.md` has the rules. Pure: entries, line, cursor, merge, answer, channel (with signals, transitions)
and reclaim. The rest does I/O through the ports of `streamway.valkey.session`.
"""

from streamway.journal.ahead import Ahead
from streamway.journal.answer import ChoiceSoFar, rebuild
from streamway.journal.beginning import Beaten, begin_call
from streamway.journal.begun import Begun
from streamway.journal.cursor import START, Cursor
from streamway.journal.entries import Entry, Kind, decode_events, encode_events
from streamway.journal.follower import Follower, FollowerListener, Following
from streamway.journal.functions import Done, Gone, Stale, accept
from streamway.journal.line import Line
from streamway.journal.merge import Behind, Continues, Diverged, Merger, NotRecovered, Verdict
from streamway.journal.reading import Read, read_channel, read_tail
from streamway.journal.reclaim import Drop, Fate, GiveUp, Requeue, Why
from streamway.journal.reclaimer import DeadLetters, Reclaimer
from streamway.journal.signals import Place, StopReason
from streamway.journal.writer import JournalWriter
from streamway.journal.writing import Writing, WritingListener

__all__ = [
    "START",
    "Ahead",
    "Beaten",
    "Begun",
    "Behind",
    "ChoiceSoFar",
    "Continues",
    "Cursor",
    "DeadLetters",
    "Diverged",
    "Done",
    "Drop",
    "Entry",
    "Fate",
    "Follower",
    "FollowerListener",
    "Following",
    "GiveUp",
    "Gone",
    "JournalWriter",
    "Kind",
    "Line",
    "Merger",
    "NotRecovered",
    "Place",
    "Read",
    "Reclaimer",
    "Requeue",
    "Stale",
    "StopReason",
    "Verdict",
    "Why",
    "Writing",
    "WritingListener",
    "accept",
    "begin_call",
    "decode_events",
    "encode_events",
    "read_channel",
    "read_tail",
    "rebuild",
]
