"""`python -m services.inference_adapter`: one worker."""

from __future__ import annotations

from services.inference_adapter.app import Adapter
from services.inference_adapter.backends.factory import make_backend
from services.inference_adapter.settings import AdapterSettings
from streamway.config import SharedSettings, load
from streamway.runtime.process import run
from streamway.telemetry import logging


def build() -> Adapter:
    """The service as configured."""
    settings, shared = load(AdapterSettings, SharedSettings)
    logging.configure("adapter", shared.log_level, shared.log_format)
    return Adapter(settings, shared, make_backend(settings.backend_options(), settings.worker))


if __name__ == "__main__":
    run(build)
