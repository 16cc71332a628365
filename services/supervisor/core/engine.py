"""Which engine the words of `--engine` and `--model` mean."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from services.supervisor.core.plan import Engine


class BadEngine(ValueError):
    """`--engine` or `--model` make no sense. The message says what to do."""


def choose(engine: str, model: Path | None) -> Engine:
    """The engine asked for; `model` is not looked at on disk. Raises BadEngine."""
    if engine == "llamacpp":
        return Engine("llamacpp", model=model)
    if engine == "llamacpp_inside":
        return Engine("llamacpp_inside", model=model)
    if model is not None:
        raise BadEngine(f"--model is for --engine llamacpp; {engine!r} brings its own model")
    if engine == "simulated":
        return Engine("simulated")
    if engine.startswith("unix:"):
        return Engine("openai_http", url=engine)
    try:
        parts = urlsplit(engine)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise BadEngine(
            f"--engine {engine!r} is unknown; use llamacpp, llamacpp_inside, simulated, or the URL of an OpenAI-compatible "
            "server such as http://127.0.0.1:8000"
        )
    return Engine("openai_http", url=engine)


def threads_each(cores: float, workers: int) -> int:
    """Compute threads for each of several llama.cpp on one machine. One for each core in each of them would spin while the
    other's hold the cores: tokens then come in bursts, seconds apart."""
    return max(1, int(cores / workers))
