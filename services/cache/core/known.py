"""Which keys are in the store: who knows saves the way there for what is not."""

from __future__ import annotations


class Known:
    """Entry ids by exact key, and what each tenant's entries take in the store. About 250 bytes for each key."""

    def __init__(self) -> None:
        self._ids: dict[bytes, str] = {}
        self._bytes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def size_bytes(self) -> int:
        """Of all tenants' entries in the store."""
        return sum(self._bytes.values())

    def get(self, key: bytes) -> str | None:
        """The entry of a key."""
        return self._ids.get(key)

    def add(self, key: bytes, entry_id: str) -> None:
        """An entry is in the store; a later one of the same key takes its place."""
        self._ids[key] = entry_id

    def remove(self, key: bytes, entry_id: str) -> None:
        """An entry is there no more. Says nothing of another one of the same key."""
        if self._ids.get(key) == entry_id:
            del self._ids[key]

    def holds(self, tenant: str, size_bytes: int) -> None:
        """What a tenant's entries take now."""
        if size_bytes > 0:
            self._bytes[tenant] = size_bytes
        else:
            self._bytes.pop(tenant, None)

    def of(self, tenant: str) -> int:
        """What a tenant's entries take."""
        return self._bytes.get(tenant, 0)

    def largest(self) -> str | None:
        """The tenant whose entries take most."""
        return max(self._bytes, key=self._bytes.__getitem__, default=None)
