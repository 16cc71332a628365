"""`streamway keys`."""

from __future__ import annotations

import getpass
import re
import secrets
import sys

from streamway.auth import hash_key
from streamway.runtime.process import StartError


def new(tenant: str) -> None:
    """Prints a fresh key of 256 bits and the row that lets it in."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", tenant):
        raise StartError("--tenant takes up to 64 letters, digits, _ . -")
    key = f"sw-{secrets.token_urlsafe(32)}"
    print(f"key, shown only now:\n\n  {key}\n")
    print("row under 'keys:' in the file that STREAMWAY_API_KEYS_FILE names:\n")
    print(f"  - hash: {hash_key(key)}\n    tenant: {tenant}")
    print("\nor, with a tenancy section (docs/tenants.md), in the list 'keys' of the tenant's row:\n")
    print(f"  {hash_key(key)}")


def print_hash() -> None:
    """Prints the hash of the key on standard input."""
    key = (getpass.getpass("key: ") if sys.stdin.isatty() else sys.stdin.readline()).strip()
    if not key:
        raise StartError("no key was given; pipe it in or type it")
    print(hash_key(key))
