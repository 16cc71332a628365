"""Reads the section `models` of streamway.yaml as a whole."""

from __future__ import annotations

from streamway.config.base import MODELS_SECTION, config_file, file_sections
from streamway.models.routing import ModelRouting
from streamway.models.rows import routing_of
from streamway.runtime.start import StartError


def load_models() -> ModelRouting:
    """What the section says now; nothing without one. Raises StartError with one line: where, what is wrong."""
    try:
        return routing_of(file_sections().get(MODELS_SECTION))
    except ValueError as problem:
        raise StartError(f"{config_file()}: {MODELS_SECTION}.{problem}") from None
