"""`python -m services.cache`: one cache."""

from __future__ import annotations

import os
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
    # Read when numpy is imported. With more threads a search that takes 0.05 ms waits for a core that others use.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Not earlier: whoever asks for `--print-config`, as the supervisor does at each start, need not wait for these imports.
    from services.cache.app import CacheApp

    logging.configure("cache", shared.log_level, shared.log_format)
    return CacheApp(settings, shared)


if __name__ == "__main__":
    run(build)
