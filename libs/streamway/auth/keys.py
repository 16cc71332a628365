"""The callers that API keys belong to."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Self

from streamway.auth.identity import Identity
from streamway.tenancy import hash_key, read_keys


class ApiKeys:
    """The keys that are accepted. Lookups compare hashes, so that timing tells nothing about a key."""

    def __init__(self, tenants: dict[str, str]) -> None:
        self._tenants = dict(tenants)

    def __len__(self) -> int:
        return len(self._tenants)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads the file. Raises StartError with the line's fault."""
        return cls(read_keys(path))

    def identify(self, key: str) -> Identity | None:
        """The caller a key belongs to, or None."""
        tenant = self._tenants.get(hash_key(key))
        return Identity(tenant) if tenant is not None else None


def same_secret(given: str, expected: str) -> bool:
    """Compares in constant time."""
    return hmac.compare_digest(given.encode(), expected.encode())
