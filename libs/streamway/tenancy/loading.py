"""Reads tenants and keys as a whole: everything in it is good, or the first fault is told and nothing of it counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from streamway.config import SharedSettings, strict_yaml
from streamway.config.base import TENANCY_SECTION, config_file, file_sections
from streamway.runtime.start import StartError
from streamway.tenancy.jwt_keys import read_jwks, read_secret
from streamway.tenancy.keys_file import read_keys
from streamway.tenancy.model import ANONYMOUS_TENANT, DEFAULT_TIERS, JwtRules, Quota, Tenancy, Tenant, Tier, TierName
from streamway.tenancy.rows import JwtRow, QuotaRow, TenancyRows, TenantRow, check

_QUOTA = ("concurrency", "requests_per_minute", "tokens_per_minute")
_SHARE = ("weight", "highest_priority", "buffered_bytes", "semantic_lookup", "semantic_threshold", "semantic_rules_off")


def load_tenancy(shared: SharedSettings) -> Tenancy:
    """What the tenancy section or STREAMWAY_TENANTS_FILE, and STREAMWAY_API_KEYS_FILE, say now.

    Raises StartError with one line: which file, where in it, what to do. It never repeats a value that may be a secret.
    """
    content, where, source = _content(shared)
    files = [source] if source is not None else []
    keys: dict[str, str] = {}
    if shared.api_keys_file is not None:
        files.append(shared.api_keys_file)
        keys |= read_keys(shared.api_keys_file)
    if content is None:
        return Tenancy(keys=keys, anonymous="" if keys else ANONYMOUS_TENANT, files=tuple(files))
    try:
        made = build(check(content), keys, source.parent if source is not None else Path())
        return replace(made, files=(*files, *made.files))
    except ValueError as problem:
        raise StartError(f"{where}{problem}") from None


def build(rows: TenancyRows, keys: dict[str, str], folder: Path = Path()) -> Tenancy:
    """The tenants and tiers that rows describe; `keys` are those of the API keys file, by hash. Raises ValueError.

    `folder` is what the paths of the rows are relative to.
    """
    tiers = {name: _tier(name, rows) for name in TierName}
    tenants = {name: _tenant(name, row, tiers[row.tier]) for name, row in rows.tenants.items()}
    owners = dict(keys)
    for name, row in rows.tenants.items():
        for number, key in enumerate(row.keys):
            owner = owners.setdefault(key, name)
            if owner != name:
                raise ValueError(
                    f"tenants.{name}.keys.{number}: the tenant {owner!r} has this key already; give each its own"
                )
    default = tiers[rows.default_tier] if rows.default_tier is not None else None
    for owner in keys.values():
        if owner not in tenants and default is None:
            raise ValueError(
                f"tenants: {owner!r} of the API keys file has no row here; add one, or set default_tier for such tenants"
            )
    if rows.anonymous is not None and rows.anonymous not in tenants:
        raise ValueError(f"anonymous: there is no tenant {rows.anonymous!r}; add it under tenants")
    anonymous = rows.anonymous or ("" if owners or rows.jwt else ANONYMOUS_TENANT)
    jwt, files = _jwt(rows.jwt, folder) if rows.jwt is not None else (None, ())
    return Tenancy(tenants, tiers, owners, jwt, configured=True, default_tier=default, anonymous=anonymous, files=files)


def _content(shared: SharedSettings) -> tuple[Any, str, Path | None]:
    """What the section holds, None when there is none; how a fault in it begins; the file to watch for it."""
    path = config_file()
    section = file_sections().get(TENANCY_SECTION)
    named = shared.tenants_file
    if named is None:
        return section, f"{path}: {TENANCY_SECTION}.", path
    if section is not None:
        raise StartError(
            f"tenants are in the section {TENANCY_SECTION!r} of {path} and in {named}, which STREAMWAY_TENANTS_FILE "
            "names; keep one of them"
        )
    try:
        content = strict_yaml.parse(named.read_text(encoding="utf-8"))
    except OSError as problem:
        raise StartError(
            f"cannot read the tenants file {named}: {problem.strerror}; check STREAMWAY_TENANTS_FILE"
        ) from None
    except UnicodeDecodeError:
        raise StartError(f"the tenants file {named} is not UTF-8 text") from None
    except ValueError as problem:
        raise StartError(f"the tenants file {named} is not YAML: {problem}") from None
    return content or {}, f"{named}: ", named


def _tier(name: TierName, rows: TenancyRows) -> Tier:
    tier, row = DEFAULT_TIERS[name], rows.tiers.get(name)
    if row is None:
        return tier
    return replace(tier, **row.given(*_SHARE), quota=_quota(tier.quota, row))


def _tenant(name: str, row: TenantRow, tier: Tier) -> Tenant:
    share = {field: getattr(tier, field) for field in _SHARE} | row.given(*_SHARE)
    return Tenant(
        name,
        tier.name,
        **share,
        quota=_quota(tier.quota, row),
        model_quotas={model: _quota(Quota(), limits) for model, limits in row.models.items()},
        allowed_models=frozenset(row.allowed_models) if row.allowed_models is not None else None,
    )


def _jwt(row: JwtRow, folder: Path) -> tuple[JwtRules, tuple[Path, ...]]:
    if (row.secret_file is None) == (row.jwks_file is None):
        raise ValueError("jwt: needs either secret_file, for HS256, or jwks_file, for RS256")
    keys: dict[str, Any]
    if row.secret_file is not None:
        field, path = "secret_file", folder / row.secret_file
    else:
        field, path = "jwks_file", folder / str(row.jwks_file)
    try:
        keys = {"": read_secret(path)} if row.secret_file is not None else read_jwks(path)
    except ValueError as problem:
        raise ValueError(f"jwt.{field}: {problem}") from None
    rules = JwtRules(
        row.issuer,
        row.audience,
        "HS256" if row.secret_file is not None else "RS256",
        row.tenant_claim,
        row.session_claim or "",
        float(row.leeway_s),
        keys,
    )
    return rules, (path,)


def _quota(above: Quota, row: QuotaRow) -> Quota:
    return replace(above, **row.given(*_QUOTA))
