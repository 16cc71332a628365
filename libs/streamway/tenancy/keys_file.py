"""The API keys file: the hash of each key and its tenant.

keys:
  - hash: 3f79bb7b435b05321651daefd374cdc681dc06faa65e374e38337b88ca046dea   # sha256 of the key
    tenant: acme
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

from streamway.config import strict_yaml
from streamway.runtime.start import StartError
from streamway.tenancy.model import TENANT_NAME

_HASH: Final = re.compile(r"[0-9a-f]{64}")


def hash_key(key: str) -> str:
    """SHA-256 of a key in hex. Keys are long and random, so that a fast hash is enough."""
    return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def read_keys(path: Path) -> dict[str, str]:
    """The tenant of each key by the key's hash. Raises StartError with the row at fault."""
    try:
        content = strict_yaml.parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise StartError(f"cannot read the API keys file {path}: {problem}") from None
    except ValueError as problem:
        raise StartError(f"the API keys file {path} is not YAML: {problem}") from None
    rows = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(rows, list) or not rows:
        raise StartError(f"the API keys file {path} needs a list 'keys' with 'hash' and 'tenant' in each row")
    tenants: dict[str, str] = {}
    for number, row in enumerate(rows, 1):
        digest, tenant = (str(row.get("hash", "")), str(row.get("tenant", ""))) if isinstance(row, dict) else ("", "")
        if not _HASH.fullmatch(digest) or not TENANT_NAME.fullmatch(tenant):
            raise StartError(
                f"row {number} of the API keys file {path} needs 'hash' (64 hex digits, see `streamway keys hash`) "
                "and 'tenant' (letters, digits, _ . -)"
            )
        if tenants.setdefault(digest, tenant) != tenant:
            raise StartError(f"row {number} of the API keys file {path} gives another tenant to a key listed before")
    return tenants
