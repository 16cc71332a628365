"""What is looked for: five settings, each on a ladder of values that somebody might write down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import yaml

# How long engines keep a connection without a request: vLLM, as it comes.
ENGINE_KEEPS_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Configuration:
    """As in the adapter's settings of the same names; `kept_s` 0: as long as the engine keeps it."""

    kept_connections: int = 256
    kept_s: float = 0.0
    queue_timeout_s: float = 300.0
    flush_ms: float = 20.0
    preload_depth: int = 4

    @property
    def settings(self) -> dict[str, dict[str, float]]:
        """As the mesh reads it. The depth does not move, since the simulation's does not."""
        return {
            "adapter": {
                "engine_kept_connections": self.kept_connections,
                "engine_kept_s": self.kept_s,
                "queue_timeout_s": self.queue_timeout_s,
                "flush_ms": self.flush_ms,
                "preload_depth": self.preload_depth,
                "most_preload_depth": self.preload_depth,
            }
        }

    def yaml(self, *comments: str) -> str:
        """A file that STREAMWAY_CONFIG may name."""
        return "".join(f"# {line}\n" for line in comments) + yaml.safe_dump(self.settings, sort_keys=False)


DEFAULT: Final = Configuration()
LADDERS: Final[dict[str, Sequence[float]]] = {
    "kept_connections": (0, 1, 2, 3, 4, 6, 8, 16, 32, 64, 256),
    "kept_s": (0.5, 1, 2, 3, 4, 0),
    "queue_timeout_s": (2, 5, 10, 30, 300),
    "flush_ms": (1, 2, 5, 10, 15, 20, 25, 30, 40, 50),
    "preload_depth": (1, 2, 3, 4, 6, 8, 16),
}


def at(steps: Sequence[int]) -> Configuration:
    """The configuration on these steps of the ladders, in their order."""
    values = {name: ladder[step] for (name, ladder), step in zip(LADDERS.items(), steps, strict=True)}
    whole = {"kept_connections", "preload_depth"}
    return Configuration(**{name: int(value) if name in whole else float(value) for name, value in values.items()})  # type: ignore[arg-type]


def steps_of(configuration: Configuration) -> list[int]:
    """The steps where `at` finds it."""
    return [list(ladder).index(getattr(configuration, name)) for name, ladder in LADDERS.items()]
