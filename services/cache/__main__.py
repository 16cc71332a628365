"""`python -m services.cache`: one cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.cache.settings import CacheSettings
from streamway.config import SharedSettings, load
from streamway.runtime.process import run
from streamway.telemetry import logging

if TYPE_CHECKING:
    from services.cache.app import CacheApp


def build() -> CacheApp:
    """The service as configured."""
    settings, shared = load(CacheSettings, SharedSettings)
    # Not earlier: whoever asks for `--print-config`, as the supervisor does at each start, need not wait for these imports.
    from services.cache.app import CacheApp

    logging.configure("cache", shared.log_level, shared.log_format)
    return CacheApp(settings, shared)


if __name__ == "__main__":
    run(build)
