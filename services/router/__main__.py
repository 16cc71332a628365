"""`python -m services.router`."""

from services.router.app import RouterApp
from services.router.settings import RouterSettings
from streamway.config import SharedSettings, load
from streamway.runtime.process import run
from streamway.telemetry import logging


def build() -> RouterApp:
    """Reads the settings and wires the service."""
    settings, shared = load(RouterSettings, SharedSettings)
    logging.configure("router", shared.log_level, shared.log_format)
    return RouterApp(settings, shared)


if __name__ == "__main__":
    run(build)
