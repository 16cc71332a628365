"""Asks a running engine what it can do, and keeps the answer for the table in docs/engines.md.

python scripts/record_engine.py vLLM --url unix:/tmp/vllm.sock
python scripts/record_engine.py "llama.cpp server" --kind llamacpp --model-path model.gguf
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
RECORDS: Final = ROOT / "docs" / "engines.json"


async def ask(kind: str, url: str, model_path: Path | None) -> dict[str, Any]:
    """What one engine is found to do. Raises StartError when it can't be reached or started."""
    from services.inference_adapter.backends.factory import make_backend
    from services.inference_adapter.backends.options import BackendOptions

    options = BackendOptions.model_validate({"kind": kind, "url": url, "model_path": model_path})
    backend = make_backend(options, "recorder")
    try:
        await backend.start()
        known = backend.info().capabilities
    finally:
        await backend.close()
    abilities = {
        ability: ("yes" if ability in known.can else "no") + ("" if ability in known.tried else ", as documented")
        for ability in sorted(known.can | known.cannot)
    }
    return {"profile": known.profile, "version": known.version, "abilities": abilities}


def main() -> None:
    """Writes one row."""
    words = argparse.ArgumentParser(prog="record_engine")
    words.add_argument("name", help="as it stands in the table")
    words.add_argument("--kind", default="openai_http")
    words.add_argument("--url", default="")
    words.add_argument("--model-path", type=Path)
    words.add_argument("--version", default="", help="where the engine does not tell it")
    given = words.parse_args()
    records = json.loads(RECORDS.read_text(encoding="utf-8")) if RECORDS.exists() else {}
    record = asyncio.run(ask(given.kind, given.url, given.model_path))
    record["version"] = given.version or record["version"]
    records[given.name] = record
    RECORDS.write_text(json.dumps(records, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    print(f"recorded {given.name}; run `make docs`")


if __name__ == "__main__":
    main()
