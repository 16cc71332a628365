"""`python -m services.edge`: one edge process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.edge.settings import EdgeSettings
from streamway.config import SharedSettings, load
from streamway.runtime import process

if TYPE_CHECKING:
    from services.edge.app import Edge


def build() -> Edge:
    """Reads the settings and composes the service. What serves is imported last, so that --print-config answers at once."""
    settings, shared = load(EdgeSettings, SharedSettings)

    from services.edge.app import Edge
    from streamway.telemetry import logging

    logging.configure(f"edge-{settings.index}", shared.log_level, shared.log_format)
    return Edge(settings, shared)


if __name__ == "__main__":
    process.run(build)
