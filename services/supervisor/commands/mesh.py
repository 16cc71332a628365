"""How a client command finds the mesh and what it shows there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from services.supervisor.commands.arguments import given
from services.supervisor.io.data_dir import MESH_FILE
from services.supervisor.io.ready_file import read_json
from services.supervisor.settings import ClientSettings
from streamway.config import SharedSettings, load
from streamway.rpc import mesh_metadata

DEFAULT_ROUTER = "127.0.0.1:7001"


class Mesh:
    """The mesh that a command talks to."""

    def __init__(self, options: Mapping[str, str | int | Path | None]) -> None:
        self.settings: ClientSettings
        self.shared: SharedSettings
        self.settings, self.shared = load(ClientSettings, SharedSettings, arguments=given(options))
        self._file = read_json(self.settings.data_dir.expanduser() / MESH_FILE)

    @property
    def routers(self) -> list[str]:
        """Addresses of routers, at least one: the one that was given, or those of the running mesh."""
        if self.settings.router:
            return [self.settings.router]
        found = [str(row["address"]) for row in self.processes if row["name"].startswith("router-")]
        return found or [DEFAULT_ROUTER]

    @property
    def processes(self) -> list[dict[str, Any]]:
        """The processes of the mesh that runs on `data_dir`: name, pid, address. Empty when none does."""
        return list(self._file.get("processes", []))

    def valkey_url(self, given_url: str | None) -> str:
        """Where its Valkey is: as given, as the running mesh says, else as configured."""
        return given_url or str(self._file.get("valkey", "")) or self.shared.valkey_url.get_secret_value()

    @property
    def metadata(self) -> Any:
        """What each call carries: the API key where there is one, else the mesh token."""
        if self.settings.api_key is not None:
            return (("authorization", f"Bearer {self.settings.api_key.get_secret_value()}"),)
        return mesh_metadata(self.shared)
