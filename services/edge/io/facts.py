"""What every part of the edge may know of a generation that is read here."""

from __future__ import annotations


class GenerationFacts:
    """`id` changes once where an idempotency key attaches a request to an earlier generation. `session`: 16 hex digits, empty
    where it is not known. `surface`: the label of its metrics.

    `grace`: a reader that leaves does not cancel it. `durable`: it has a response channel. `follow`: what comes after `accepted`
    is read too. `paused`: its client reads too slowly. `ended`: nothing of it comes any more.
    """

    __slots__ = ("durable", "ended", "follow", "grace", "id", "paused", "session", "surface", "tenant")

    def __init__(self, id_: str, tenant: str, surface: str) -> None:
        self.id = id_
        self.tenant = tenant
        self.surface = surface
        self.session = ""
        self.grace = True
        self.durable = False
        self.follow = True
        self.paused = False
        self.ended = False
