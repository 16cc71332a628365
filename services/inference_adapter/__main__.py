"""`python -m services.inference_adapter`: one worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.inference_adapter.settings import AdapterSettings
from streamway.config import SharedSettings, load
from streamway.runtime.process import run
from streamway.telemetry import logging

if TYPE_CHECKING:
    from services.inference_adapter.app import Adapter


def build() -> Adapter:
    """The service as configured. What serves is imported last, so that --print-config answers at once."""
    settings, shared = load(AdapterSettings, SharedSettings)

    from services.inference_adapter.app import Adapter
    from services.inference_adapter.backends.factory import make_lasting_backend
    from services.inference_adapter.backends.openai_http.sweep import Sweep

    logging.configure("adapter", shared.log_level, shared.log_format)
    sweep = Sweep(settings.sweep_from)
    backend = make_lasting_backend(settings.backend_options(), settings.worker, sweep)
    return Adapter(settings, shared, backend, sweep=sweep)


if __name__ == "__main__":
    run(build)
