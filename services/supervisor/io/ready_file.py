"""The file that tells others where the mesh is, replaced as a whole."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes beside `path` and renames, so that a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    beside.chmod(0o600)
    beside.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    """What was written; empty when there is no such file or it is not ours."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
