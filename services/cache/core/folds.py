"""Which entry answers the same words, however they are typed."""

from __future__ import annotations

from typing import Final

# What an entry needs here: its key, its id and places in two dicts. Measured with tracemalloc.
COST_BYTES: Final = 200


class Folds:
    """Entries by folded key, which holds tenant and context: `streamway.cachekey.folded_key`.

    As many as there are entries: whoever owns those says when one is gone. Of two with one key the later one is found.
    """

    def __init__(self) -> None:
        self._entries: dict[bytes, str] = {}
        self._keys: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: bytes, entry: str) -> None:
        """Makes an entry findable."""
        self._entries[key] = entry
        self._keys[entry] = key

    def find(self, key: bytes) -> str | None:
        """The entry."""
        return self._entries.get(key)

    def remove(self, entry: str) -> None:
        """Forgets an entry; nothing for one that is not here."""
        key = self._keys.pop(entry, None)
        if key is not None and self._entries.get(key) == entry:
            del self._entries[key]
