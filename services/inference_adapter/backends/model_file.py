"""The model that llama.cpp is started with, read before it is."""

from __future__ import annotations

import mmap
import re
from dataclasses import replace
from pathlib import Path

from services.inference_adapter.core.gguf import MAGIC, BadModelFile, ModelFile, parse
from streamway.runtime.process import StartError

# Large models come in several files, of which the first is named.
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


def read_model_file(path: Path) -> ModelFile:
    """What the file says, all of its parts together. Raises StartError with what to do."""
    parts = parts_of(path)
    first, *others = (_read(part) for part in parts)
    return replace(first, bytes=first.bytes + sum(other.bytes for other in others))


def parts_of(path: Path) -> list[Path]:
    """The files of which `path` is the first, or the only one."""
    found = _PART.search(path.name)
    if found is None or found[1] != "00001":
        return [path]
    return [
        path.with_name(path.name.replace(found[0], f"-{number:05}-of-{found[2]}.gguf"))
        for number in range(1, int(found[2]) + 1)
    ]


def _read(path: Path) -> ModelFile:
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise StartError(f"{path} is not a GGUF file; download it again or give another")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return parse(data)
    except FileNotFoundError:
        raise StartError(
            f"there is no model file {path}; "
            "run `python scripts/install_model.py` for the small one, or give the path of a GGUF file"
        ) from None
    except OSError as problem:
        raise StartError(f"cannot read the model file {path}: {problem.strerror}") from None
    except BadModelFile as problem:
        raise StartError(
            f"the model file {path} cannot be used: {problem}; download it again or give another"
        ) from None
