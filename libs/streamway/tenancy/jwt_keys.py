"""The keys that signatures of JSON Web Tokens are checked with: one secret, or the public keys of a JWKS file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import RSAAlgorithm
from jwt.exceptions import PyJWTError

# RFC 7518 §3.2 and §3.3.
_LEAST_SECRET_BYTES: Final = 32
_LEAST_RSA_BITS: Final = 2048
_MOST_BYTES: Final = 1024 * 1024


def read_secret(path: Path) -> bytes:
    """The secret of HS256: the file's bytes without the line's end. Raises ValueError, which never holds any of them."""
    secret = _bytes(path).rstrip(b"\r\n")
    if len(secret) < _LEAST_SECRET_BYTES:
        raise ValueError(f"the secret in {path} needs at least {_LEAST_SECRET_BYTES} bytes")
    return secret


def read_jwks(path: Path) -> dict[str, Any]:
    """The RSA keys of a JWKS file by their `kid`, "" for the one key that has none. Raises ValueError."""
    try:
        content = json.loads(_bytes(path))
    except (ValueError, RecursionError):
        raise ValueError(f"{path} is not JSON") from None
    rows = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(rows, list) or not rows:
        raise ValueError(f"{path} needs a list 'keys', as RFC 7517 has it")
    keys: dict[str, Any] = {}
    for number, row in enumerate(rows):
        if not isinstance(row, dict) or row.get("kty") != "RSA" or row.get("alg", "RS256") != "RS256":
            # Identity providers publish keys of other kinds beside ours.
            continue
        key = _public_key(row, f"key {number} of {path}")
        kid = row.get("kid", "")
        if not isinstance(kid, str) or kid in keys:
            raise ValueError(f"key {number} of {path} has no 'kid' of its own")
        keys[kid] = key
    if not keys:
        raise ValueError(f"{path} has no RSA key for RS256")
    if "" in keys and len(keys) > 1:
        raise ValueError(f"each of the {len(keys)} keys in {path} needs a 'kid'")
    return keys


def _public_key(row: dict[str, Any], which: str) -> RSAPublicKey:
    if "d" in row:
        raise ValueError(f"{which} is a private key; publish only public ones")
    try:
        key = RSAAlgorithm.from_jwk(row)
    except (PyJWTError, ValueError, TypeError, KeyError, OverflowError):
        raise ValueError(f"{which} is no RSA key") from None
    if not isinstance(key, RSAPublicKey) or key.key_size < _LEAST_RSA_BITS:
        raise ValueError(f"{which} has fewer than {_LEAST_RSA_BITS} bits")
    return key


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as problem:
        raise ValueError(f"cannot read {path}: {problem.strerror}") from None
    if len(content) > _MOST_BYTES:
        raise ValueError(f"{path} is larger than {_MOST_BYTES} bytes")
    return content
