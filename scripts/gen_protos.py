"""Generates `libs/streamway/v1` from `protos/`: messages, gRPC stubs and their types.

Used by `make gen` and by the build hook (`hatch_build.py`), so that an installed package carries the same modules as
a checkout. The `google/rpc` files that our contracts import come from the installed googleapis-common-protos; they are
also copied to `.build/googleapis`, where buf finds them without a network.
"""

from __future__ import annotations

import shutil
import sys
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("streamway/v1")


def generate(root: Path = ROOT) -> list[Path]:
    """Writes the modules and returns their paths. Raises RuntimeError with protoc's exit code when it refuses a file."""
    from grpc_tools import protoc

    protos = sorted((root / "protos" / PACKAGE).glob("*.proto"))
    out = root / "libs"
    target = out / PACKAGE
    for old in target.glob("*_pb2*"):
        old.unlink()
    google = Path(str(files("google.rpc") / "status.proto")).parent.parent.parent
    scripts = Path(sys.executable).parent
    code = protoc.main(
        [
            "protoc",
            f"-I{root / 'protos'}",
            f"-I{google}",
            f"-I{files('grpc_tools') / '_proto'}",
            f"--plugin=protoc-gen-mypy={_plugin('protoc-gen-mypy', scripts)}",
            f"--plugin=protoc-gen-mypy_grpc={_plugin('protoc-gen-mypy_grpc', scripts)}",
            f"--python_out={out}",
            f"--grpc_python_out={out}",
            f"--mypy_out=quiet:{out}",
            f"--mypy_grpc_out=quiet:{out}",
            *map(str, protos),
        ]
    )
    if code:
        raise RuntimeError(f"protoc refused the contracts with exit code {code}; its message is above")
    return sorted(target.glob("*_pb2*"))


def copy_googleapis(root: Path = ROOT) -> Path:
    """Copies the `google/rpc` contracts that ours import to where `buf.yaml` looks for them."""
    target = root / ".build" / "googleapis" / "google" / "rpc"
    target.mkdir(parents=True, exist_ok=True)
    for name in ("status.proto", "error_details.proto"):
        shutil.copyfile(str(files("google.rpc") / name), target / name)
    return target


def _plugin(name: str, scripts: Path) -> str:
    """Finds a protoc plugin beside the interpreter, or on the path when a build isolates its environment."""
    beside = scripts / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        raise RuntimeError(f"{name} is not installed: run `make setup`")
    return found


if __name__ == "__main__":
    made = generate()
    copy_googleapis()
    print(f"generated {len(made)} modules in libs/{PACKAGE}")
