"""Build hook: an installed package carries the modules generated from `protos/`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ContractsHook(BuildHookInterface[Any]):
    """Generates `libs/streamway/v1` before the files are collected."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        sys.path.insert(0, str(root / "scripts"))
        from gen_protos import generate

        generate(root)
