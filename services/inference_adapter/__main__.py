"""`python -m services.inference_adapter`: one worker."""

from __future__ import annotations

import gc

from services.inference_adapter.app import Adapter
from services.inference_adapter.backends.factory import make_backend
from services.inference_adapter.settings import AdapterSettings
from streamway.config import SharedSettings, load
from streamway.runtime.process import run
from streamway.telemetry import logging


def tune_collector() -> None:
    """Has cycles looked for less often: each token leaves objects that live as long as its generation, and none of them is
    part of a cycle. Looking each 700 objects, as is usual, costs a tenth of a token."""
    gc.set_threshold(10_000, 20, 50)


def build() -> Adapter:
    """The service as configured."""
    tune_collector()
    settings, shared = load(AdapterSettings, SharedSettings)
    logging.configure("adapter", shared.log_level, shared.log_format)
    return Adapter(settings, shared, make_backend(settings.backend_options(), settings.worker))


if __name__ == "__main__":
    run(build)
