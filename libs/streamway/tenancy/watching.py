"""The tenants of a running process, read again when their files change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from streamway.config import SharedSettings
from streamway.config.base import config_file
from streamway.config.watching import ConfigWatch, Reloads
from streamway.runtime.start import StartError
from streamway.tenancy.loading import load_tenancy
from streamway.tenancy.model import Tenancy

_NAME: Final = Reloads("tenants", "streamway_config_reloads", "tenants and keys")


class TenancyWatch(ConfigWatch[Tenancy]):
    """`tenancy` is what counts now.

    `objection` says why a tenancy can't be used in this process, "" when it can. Raises StartError.
    """

    def __init__(
        self,
        shared: SharedSettings,
        registry: CollectorRegistry | None = None,
        objection: Callable[[Tenancy], str] = lambda _: "",
    ) -> None:
        named = (config_file(), shared.tenants_file, shared.api_keys_file)

        def load(before: Tenancy | None) -> Tenancy:
            found = load_tenancy(shared)
            problem = objection(found) or _objection(before, found, shared)
            if problem:
                raise StartError(problem)
            return found

        def paths(now: Tenancy | None) -> list[Path]:
            """What says which tenants there are, and what that names."""
            found = [path for path in named if path is not None]
            return list(dict.fromkeys([*found, *(now.files if now is not None else ())]))

        super().__init__(load, paths, shared.tenants_poll_s, _NAME, registry)
        if registry is not None:
            gauge = Gauge("streamway_tenants", "Tenants that have a row.", registry=registry)
            gauge.set_function(lambda: len(self.tenancy.tenants))

    @property
    def tenancy(self) -> Tenancy:
        """All tenants and keys of this moment."""
        return self.value

    def buffered_bytes(self, tenant: str) -> int | None:
        """What a tenant may have buffered in this process now; None: no bound, or not known here."""
        return self.tenancy.buffered_bytes(tenant)


def _objection(before: Tenancy | None, found: Tenancy, shared: SharedSettings) -> str:
    """Why a running process can't go from one to the other; "" when it can."""
    if before is None or before.has_credentials == found.has_credentials:
        return ""
    if before.has_credentials:
        # A file that was emptied or removed by mistake must not let everybody in.
        return "no key is left, which would let everybody in; start anew where that is meant"
    if not shared.mesh_token:
        return "keys would lock the services out of one another; set STREAMWAY_MESH_TOKEN and start anew"
    return ""
