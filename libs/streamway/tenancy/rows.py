"""What the tenancy section may say, row by row, and what each fault is called.

tenancy:
  default_tier: bronze                 # of tenants without a row; absent: they are refused
  anonymous: laptop                    # of callers without credentials, on loopback only
  tiers:
    gold: {weight: 4, highest_priority: 127, buffered_bytes: 512000000, concurrency: 256}
  tenants:
    acme:
      tier: gold
      keys: [3f79bb7b435b05321651daefd374cdc681dc06faa65e374e38337b88ca046dea]
      tokens_per_minute: 200000        # instead of the tier's
      allowed_models: [qwen3, smollm2]
      semantic_lookup: before          # or beside, off
      semantic_threshold: static       # or budget, or a similarity
      semantic_rules_off: [swap]       # rules of the cache that do not hold for it
      models:
        qwen3: {concurrency: 8}
  jwt:
    issuer: https://login.example.org
    audience: streamway
    jwks_file: jwks.json               # RS256; or secret_file: HS256
    tenant_claim: tenant
    session_claim: sid                 # optional
"""

from __future__ import annotations

import difflib
import re
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from streamway.tenancy.model import CACHE_RULES, TENANT_NAME, SemanticLookup, ThresholdWord, TierName

UNLIMITED_WORD: Final = "unlimited"
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_MOST: Final = 2**53
_TIERS: Final = ", ".join(TierName)


def _fault(message: str) -> PydanticCustomError:
    # The text may come from a file, so it must not be taken for a template.
    return PydanticCustomError("streamway", "{message}", {"message": message})


def _whole(least: int, most: int, otherwise: str = "") -> BeforeValidator:
    """A whole number; `otherwise` is a word that may stand for None."""

    def check(value: Any) -> int | None:
        if otherwise and value == otherwise:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            wanted = f"a whole number from {least}" + (f" to {most}" if most < _MOST else "")
            raise _fault(f"must be {wanted}" + (f", or '{otherwise}'" if otherwise else ""))
        return value

    return BeforeValidator(check)


def _weight(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1000:
        raise _fault("must be a whole number from 1 to 1000; with 0 its work would never run")
    return value


def _tier(value: Any) -> TierName:
    try:
        return TierName(value)
    except ValueError:
        raise _fault(f"there is no such tier; there are {_TIERS}") from None


def _tenant_name(value: Any) -> str:
    if not isinstance(value, str):
        raise _fault(f"YAML reads a name here as {str(value)[:20]}, which is no text; put it in quotes")
    if not TENANT_NAME.fullmatch(value):
        raise _fault("a tenant's name has 1 to 64 letters, digits, _ . -")
    return value


def _model_name(value: Any) -> str:
    if not isinstance(value, str) or not value or len(value.encode(errors="replace")) > 256:
        raise _fault("must be the name of a model, 1 to 256 bytes of text")
    return value


def _cache_rule(value: Any) -> str:
    if value not in CACHE_RULES:
        raise _fault(f"no rule of the cache is called {value!r}; there are {', '.join(CACHE_RULES)}")
    return str(value)


def _words(value: Any) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= 1024:
        raise _fault("must be text, 1 to 1024 characters")
    return value


def _key_hash(value: Any) -> str:
    # What stands there may be a key by mistake, so it is never repeated.
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise _fault("must be the SHA-256 of a key, 64 hex digits in lower case; `streamway keys hash` makes it")
    return value


def _semantic_lookup(value: Any) -> SemanticLookup:
    # YAML reads a bare `off` as false.
    wanted = "off" if value is False else value
    try:
        return SemanticLookup(wanted)
    except ValueError:
        raise _fault(f"must be one of {', '.join(SemanticLookup)}") from None


def _semantic_threshold(value: Any) -> float | str:
    if value in ("budget", "static"):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1 <= value <= 1:
        raise _fault("must be 'budget', 'static', or a similarity from -1 to 1")
    return float(value)


Limit: TypeAlias = Annotated[int | None, _whole(1, _MOST, UNLIMITED_WORD)]
Weight: TypeAlias = Annotated[int, BeforeValidator(_weight)]
Priority: TypeAlias = Annotated[int, _whole(-128, 127)]
Tier: TypeAlias = Annotated[TierName, BeforeValidator(_tier)]
Lookup: TypeAlias = Annotated[SemanticLookup, BeforeValidator(_semantic_lookup)]
Similarity: TypeAlias = Annotated[float | ThresholdWord | None, BeforeValidator(_semantic_threshold)]
Name: TypeAlias = Annotated[str, BeforeValidator(_tenant_name)]
Model: TypeAlias = Annotated[str, BeforeValidator(_model_name)]
Words: TypeAlias = Annotated[str, BeforeValidator(_words)]
CacheRule: TypeAlias = Annotated[str, BeforeValidator(_cache_rule)]
KeyHash: TypeAlias = Annotated[str, BeforeValidator(_key_hash)]


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    def given(self, *names: str) -> dict[str, Any]:
        """What the file says of these fields, None for 'unlimited'; what it does not say is missing."""
        return {name: getattr(self, name) for name in names if name in self.model_fields_set}


class QuotaRow(_Row):
    """Limits; what is absent is not limited, or as in the row above it."""

    concurrency: Limit = None
    requests_per_minute: Limit = None
    tokens_per_minute: Limit = None


class TierRow(QuotaRow):
    """What a tier, or one tenant of it, has otherwise than the defaults."""

    weight: Weight = 1
    highest_priority: Priority = 0
    buffered_bytes: Limit = None
    semantic_lookup: Lookup = SemanticLookup.BESIDE
    semantic_threshold: Similarity = None
    semantic_rules_off: frozenset[CacheRule] | None = None


class TenantRow(TierRow):
    """One tenant."""

    tier: Tier
    keys: list[KeyHash] = []
    allowed_models: list[Model] | None = None
    models: dict[Model, QuotaRow] = {}


class JwtRow(_Row):
    """Which tokens are believed. Paths are relative to the file that names them."""

    issuer: Words
    audience: Words
    secret_file: Words | None = None
    jwks_file: Words | None = None
    tenant_claim: Words = "tenant"
    session_claim: Words | None = None
    leeway_s: Annotated[int, _whole(0, 300)] = 30


class TenancyRows(_Row):
    """The whole section."""

    default_tier: Tier | None = None
    anonymous: Name | None = None
    tiers: dict[Tier, TierRow] = {}
    tenants: dict[Name, TenantRow] = {}
    jwt: JwtRow | None = None


def check(content: Any) -> TenancyRows:
    """The section as rows. Raises ValueError: where in the section, what is wrong, what to do."""
    if content is None:
        content = {}
    try:
        return TenancyRows.model_validate(content)
    except ValidationError as problem:
        errors = problem.errors(include_url=False, include_context=False, include_input=False)
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise ValueError(_told(errors[0]) + more) from None


def _told(error: Any) -> str:
    kind, path = error["type"], [_printable(str(part)[:64]) for part in error["loc"]]
    if path[-1:] == ["[key]"] and kind != "extra_forbidden":
        # What pydantic puts behind a name that is wrong says nothing to who wrote the file.
        path.pop()
    where = ".".join(path)
    if kind == "extra_forbidden":
        known = _fields_at(path[:-1])
        close = difflib.get_close_matches(path[-1], known, n=1, cutoff=0.6)
        return f"{where}: unknown key; " + (f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}")
    if kind == "missing":
        return f"{where}: is missing"
    if kind in ("model_type", "dict_type"):
        return f"{where or 'the section'}: must be a mapping of names to values"
    if kind == "list_type":
        return f"{where}: must be a list"
    return f"{where}: {error['msg']}" if where else str(error["msg"])


def _printable(name: str) -> str:
    return name if name.isprintable() else ascii(name)


def _fields_at(path: list[str]) -> list[str]:
    kinds: dict[tuple[int, str], type[BaseModel]] = {
        (0, ""): TenancyRows,
        (2, "tiers"): TierRow,
        (2, "tenants"): TenantRow,
        (4, "tenants"): QuotaRow,
        (1, "jwt"): JwtRow,
    }
    kind = kinds.get((len(path), path[0] if path else ""), TenancyRows)
    return list(kind.model_fields)
