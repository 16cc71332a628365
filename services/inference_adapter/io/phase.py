"""Where one engine call and its channel are."""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """How far they are.

    QUEUED ──► BEGINNING ──► RUNNING ──► ENDING ──► GONE
       │         │    └─► BEGUN ▲│          │          ▲
       └─────────┴─────────┴────┴┴──────────┴─► LEAVING┘    nothing to run, fenced, or given to another worker
    """

    QUEUED = "queued"
    BEGINNING = "beginning"
    BEGUN = "begun"  # the store took so long that its slot was given back; it waits for another
    RUNNING = "running"
    ENDING = "ending"  # its end is cut, and not confirmed
    LEAVING = "leaving"
    GONE = "gone"
