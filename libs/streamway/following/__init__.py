"""Reading one generation wherever it is: its response channel, its worker, the worker that takes it over.

`reader` describes the API. Used by edges for their clients and by routers for what they relay.
"""

from streamway.following.cursors import cursor_at
from streamway.following.ports import Locate, Located, Place, ReaderPorts, ReaderSink
from streamway.following.reader import GenerationReader
from streamway.following.records import Record, address_of, read_record, write_follower

__all__ = [
    "GenerationReader",
    "Locate",
    "Located",
    "Place",
    "ReaderPorts",
    "ReaderSink",
    "Record",
    "address_of",
    "cursor_at",
    "read_record",
    "write_follower",
]
