"""API keys: a YAML file with the hash of each key and its tenant.

keys:
  - hash: 3f79bb7b435b05321651daefd374cdc681dc06faa65e374e38337b88ca046dea   # sha256 of the key
    tenant: acme
"""

from __future__ import annotations

import hashlib
import hmac
import re
from pathlib import Path
from typing import Self

import yaml

from streamway.auth.identity import Identity
from streamway.runtime.start import StartError

_HASH = re.compile(r"[0-9a-f]{64}")
_TENANT = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def hash_key(key: str) -> str:
    """SHA-256 of a key in hex. Keys are long and random, so that a fast hash is enough."""
    return hashlib.sha256(key.encode()).hexdigest()


class ApiKeys:
    """The keys that are accepted. Lookups compare hashes, so that timing tells nothing about a key."""

    def __init__(self, tenants: dict[str, str]) -> None:
        self._tenants = dict(tenants)

    def __len__(self) -> int:
        return len(self._tenants)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads the file. Raises StartError with the line's fault."""
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as problem:
            raise StartError(f"cannot read the API keys file {path}: {problem}") from None
        except yaml.YAMLError as problem:
            raise StartError(f"the API keys file {path} is not YAML: {' '.join(str(problem).split())}") from None
        rows = content.get("keys") if isinstance(content, dict) else None
        if not isinstance(rows, list) or not rows:
            raise StartError(f"the API keys file {path} needs a list 'keys' with 'hash' and 'tenant' in each row")
        tenants: dict[str, str] = {}
        for number, row in enumerate(rows, 1):
            digest, tenant = (
                (str(row.get("hash", "")), str(row.get("tenant", ""))) if isinstance(row, dict) else ("", "")
            )
            if not _HASH.fullmatch(digest) or not _TENANT.fullmatch(tenant):
                raise StartError(
                    f"row {number} of the API keys file {path} needs 'hash' (64 hex digits, see `streamway keys hash`) "
                    "and 'tenant' (letters, digits, _ . -)"
                )
            if tenants.setdefault(digest, tenant) != tenant:
                raise StartError(
                    f"row {number} of the API keys file {path} gives another tenant to a key listed before"
                )
        return cls(tenants)

    def identify(self, key: str) -> Identity | None:
        """The caller a key belongs to, or None."""
        tenant = self._tenants.get(hash_key(key))
        return Identity(tenant) if tenant is not None else None


def same_secret(given: str, expected: str) -> bool:
    """Compares in constant time."""
    return hmac.compare_digest(given.encode(), expected.encode())
