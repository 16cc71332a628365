"""The names of models of a running process, read again when streamway.yaml changes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from streamway.config import SharedSettings
from streamway.config.base import config_file
from streamway.config.watching import ConfigWatch, Reloads
from streamway.models.loading import load_models
from streamway.models.routing import ModelRouting

_NAME: Final = Reloads("models", "streamway_models_reloads", "names of models")


class ModelsWatch(ConfigWatch[ModelRouting]):
    """`routing` is what counts now. Raises StartError."""

    def __init__(self, shared: SharedSettings, registry: CollectorRegistry) -> None:
        super().__init__(lambda _: load_models(), _paths, shared.tenants_poll_s, _NAME, registry)

    @property
    def routing(self) -> ModelRouting:
        """All names of this moment."""
        return self.value


def _paths(_: ModelRouting | None) -> list[Path]:
    path = config_file()
    return [path] if path is not None else []
