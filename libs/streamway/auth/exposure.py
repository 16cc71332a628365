"""Nothing listens beyond loopback without auth."""

from __future__ import annotations

import ipaddress

from streamway.config.shared import SharedSettings
from streamway.runtime.start import StartError


def is_loopback(host: str) -> bool:
    """True for an address that only this machine can reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def refuse_open_exposure(host: str, shared: SharedSettings) -> None:
    """Raises StartError when `host` is reachable from outside and mesh token or API keys are missing."""
    if is_loopback(host):
        return
    missing = [
        name
        for name, value in (
            ("STREAMWAY_MESH_TOKEN", shared.mesh_token),
            ("STREAMWAY_API_KEYS_FILE", shared.api_keys_file),
        )
        if value is None
    ]
    if missing:
        raise StartError(
            f"{host} is reachable from outside this machine: set {' and '.join(missing)}, or listen on 127.0.0.1"
        )
