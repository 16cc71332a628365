"""Which entries of a tenant are to go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol


class Tagged(Protocol):
    """What an entry and its row in the index have."""

    @property
    def model(self) -> str:
        """Model as resolved."""
        ...

    @property
    def tags(self) -> tuple[str, ...]:
        """See `core.tags`."""
        ...


@dataclass(frozen=True, slots=True)
class Target:
    """All of a tenant's entries, those of a model, or those with a tag."""

    kind: Literal["purged_model", "purged_tag", "purged_all"]
    name: str = ""

    def covers(self, entry: Tagged) -> bool:
        """It is among them."""
        match self.kind:
            case "purged_model":
                return entry.model == self.name
            case "purged_tag":
                return self.name in entry.tags
            case _:
                return True
