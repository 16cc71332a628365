"""`python -m services.router`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.router.settings import RouterSettings
from streamway.config import SharedSettings, load
from streamway.runtime.process import run
from streamway.telemetry import logging

if TYPE_CHECKING:
    from services.router.app import RouterApp


def build() -> RouterApp:
    """Reads the settings and wires the service. What serves is imported last, so that --print-config answers at once."""
    settings, shared = load(RouterSettings, SharedSettings)

    from services.router.app import RouterApp

    logging.configure("router", shared.log_level, shared.log_format)
    return RouterApp(settings, shared)


if __name__ == "__main__":
    run(build)
