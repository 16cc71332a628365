"""Which engine the settings mean."""

from __future__ import annotations

from services.inference_adapter.backends.llamacpp import LlamaCppBackend
from services.inference_adapter.backends.openai_http.backend import OpenAIHTTPBackend
from services.inference_adapter.backends.openai_http.sweep import Sweep
from services.inference_adapter.backends.options import BackendOptions
from services.inference_adapter.backends.reloading import ReloadingBackend
from services.inference_adapter.backends.simulated import SimulatedBackend
from services.inference_adapter.interfaces import Backend
from streamway.runtime.process import StartError


def make_backend(options: BackendOptions, worker: str, sweep: Sweep | None = None) -> Backend:
    """The backend of `options.kind`, not started. `worker` is the id that errors name; `sweep` reads the sockets of a busy
    process, None: each is read as data comes. Raises StartError."""
    if options.kind in {"llamacpp", "llamacpp_inside"}:
        return LlamaCppBackend(options, worker, sweep)
    if options.kind == "openai_http":
        if not options.url:
            raise StartError("the engine kind openai_http needs url: http://host:port or unix:/path")
        return OpenAIHTTPBackend(options, worker, sweep=sweep)
    return SimulatedBackend(options, worker)


def make_lasting_backend(options: BackendOptions, worker: str, sweep: Sweep | None = None) -> Backend:
    """The same, and a llama.cpp that is started here can exchange its weights. Raises StartError."""
    if options.kind == "llamacpp_inside" or (options.kind == "llamacpp" and not options.url):
        return ReloadingBackend(options, worker, sweep=sweep)
    return make_backend(options, worker, sweep)
