"""Structured logs: one event a line, with the generation and trace of the current request."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

from streamway.telemetry.context import current


def configure(service: str, level: str, style: str) -> None:
    """Sets up logging for this process. `style` is "json" or "console"; standard-library loggers end up in the same form."""

    def add_context(_: Any, __: str, event: dict[str, Any]) -> dict[str, Any]:
        event.setdefault("service", service)
        context = current.get()
        if context is not None:
            event.setdefault("trace", context.trace_id)
            if context.generation:
                event.setdefault("generation", context.generation)
        return event

    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        add_context,
    ]
    json_style = style == "json"
    # Plain tracebacks: the default formatter prints local variables, and those hold prompts and secrets.
    console = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    renderer: Any = structlog.processors.JSONRenderer() if json_style else console
    tail: list[Any] = [structlog.processors.format_exc_info, renderer] if json_style else [renderer]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *tail]
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    # aiohttp logs each request; ours are counted in metrics and logged where something went wrong.
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
