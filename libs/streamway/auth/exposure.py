"""Nothing listens beyond loopback without auth."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from streamway.config.shared import SharedSettings
from streamway.runtime.address import is_loopback
from streamway.runtime.start import StartError
from streamway.tenancy import Tenancy
from streamway.tenancy.watching import TenancyWatch


def exposure_objection(host: str, shared: SharedSettings, tenancy: Tenancy) -> str:
    """Why nothing may listen on `host`: it is reachable from outside, and anybody would be let in. Empty when it may."""
    if is_loopback(host):
        return ""
    missing = [] if shared.mesh_token is not None else ["STREAMWAY_MESH_TOKEN"]
    if not tenancy.has_credentials:
        missing.append("STREAMWAY_API_KEYS_FILE or keys of tenants")
    if missing:
        return f"{host} is reachable from outside this machine: set {' and '.join(missing)}, or listen on 127.0.0.1"
    if tenancy.anonymous:
        return (
            f"{host} is reachable from outside this machine: remove 'anonymous' of the tenants, or listen on 127.0.0.1"
        )
    return ""


def refuse_open_exposure(host: str, shared: SharedSettings, tenancy: Tenancy) -> None:
    """Raises StartError with the objection, if there is one."""
    objection = exposure_objection(host, shared, tenancy)
    if objection:
        raise StartError(objection)


def watch_tenancy(host: str, shared: SharedSettings, registry: CollectorRegistry | None = None) -> TenancyWatch:
    """The tenants of a process that listens on `host`: at start and later only such as may be used there.

    Raises StartError.
    """
    return TenancyWatch(shared, registry, lambda tenancy: exposure_objection(host, shared, tenancy))
