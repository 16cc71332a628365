"""`python -m services.edge`: one edge process."""

from __future__ import annotations

from services.edge.app import Edge
from services.edge.settings import EdgeSettings
from streamway.config import SharedSettings, load
from streamway.runtime import process
from streamway.telemetry import logging


def build() -> Edge:
    """Reads the settings and composes the service."""
    settings, shared = load(EdgeSettings, SharedSettings)
    logging.configure(f"edge-{settings.index}", shared.log_level, shared.log_format)
    return Edge(settings, shared)


if __name__ == "__main__":
    process.run(build)
