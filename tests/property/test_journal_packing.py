"""An append packed by hand is the command that a general packer makes."""

from __future__ import annotations

import hiredis
from hypothesis import given
from hypothesis import strategies as st

from streamway.journal.entries import Begin, Entry, Kind
from streamway.journal.line import Line
from streamway.journal.packing import head_of, pack_append
from streamway.valkey import keys

NUMBERS = st.integers(0, 2**64 - 1)
BEGINS = st.builds(
    Begin, st.text(max_size=20), st.text(max_size=20), st.just(Line(((0, 1), (7, 2)))), st.text(max_size=20)
)
WITHOUT_BEGIN = st.sampled_from([Kind.ACCEPTED, Kind.TOKENS, Kind.END])
PLAIN = st.builds(Entry, NUMBERS, NUMBERS, NUMBERS, WITHOUT_BEGIN, st.binary(max_size=600), st.none())
FIRST = st.builds(Entry, NUMBERS, NUMBERS, NUMBERS, st.just(Kind.BEGIN), st.binary(max_size=600), BEGINS)


@given(st.text(max_size=40), st.one_of(PLAIN, FIRST))
def test_the_bytes_are_those_of_the_command(generation: str, entry: Entry) -> None:
    key = keys.response(generation)
    command = ("XADD", key, "NOMKSTREAM", str(entry.id), *entry.fields())
    assert pack_append(key, head_of(key), entry) == hiredis.pack_command(command)
