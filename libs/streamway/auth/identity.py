"""The authenticated caller of a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls. `mesh` is true for a service of ours: only then are tenant fields believed.

    `session` is what the caller's token says of its conversation; empty when it says nothing.
    """

    tenant: str
    mesh: bool = False
    session: str = ""

    def tenant_for(self, claimed: str) -> str:
        """The tenant a request is accounted to."""
        return (claimed or self.tenant) if self.mesh else self.tenant


ANONYMOUS: Final = Identity("anonymous")
