"""The wheel carries what a checkout generates, and runs from an environment of its own."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # From a copy without generated files, so that the build hook must make them; git knows which files belong to it.
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True
    )
    source = folder / "source"
    for name in names.stdout.decode().splitlines():
        if name.startswith(("libs/", "services/", "protos/", "scripts/")) or "/" not in name:
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_file():
                target.write_bytes((ROOT / name).read_bytes())
    assert not list(source.rglob("*_pb2*"))
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
        str(source),
    ]
    subprocess.run(command, check=True)
    (made,) = folder.glob("streamway-*.whl")
    return made


def test_generated_contracts_and_the_console_are_in_the_wheel(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for proto in (ROOT / "protos" / "streamway" / "v1").glob("*.proto"):
        for suffix in ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py"):
            assert f"streamway/v1/{proto.stem}{suffix}" in names
    files = (path for path in (ROOT / "services/edge/static").rglob("*") if path.is_file())
    console = {str(path.relative_to(ROOT)) for path in files}
    assert console <= names
    assert "services/edge/static/index.html" in names
    assert "streamway/py.typed" in names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "scripts/"))]


def test_an_installed_package_runs_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """Dependencies come from this environment, the package itself from a folder that holds only what the wheel held."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    program = (
        f"import sys; sys.path[:0] = [{str(tmp_path / 'site')!r}]\n"
        "import streamway.v1.common_pb2 as contract, services.supervisor.cli as command\n"
        f"assert contract.__file__.startswith({str(tmp_path)!r}) and command.__file__.startswith({str(tmp_path)!r})\n"
        "print(contract.Event.DESCRIPTOR.full_name)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "streamway.v1.Event\n"), done.stderr


def test_what_building_needs_is_locked_as_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    locked = (ROOT / "requirements/build.in").read_text(encoding="utf-8").splitlines()
    assert sorted(line for line in locked if not line.startswith("#")) == sorted(declared)


@pytest.mark.parametrize("name", ["runtime.txt", "dev.txt", "build.txt", "model.txt"])
def test_lock_files_name_versions_and_hashes_and_no_index(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    assert "--index-url" not in text
    assert "--find-links" not in text
    assert "://" not in text
    assert text.count("--hash=sha256:") >= text.count("==") > 0


def test_what_runs_has_the_versions_that_were_tested() -> None:
    def pins(name: str) -> dict[str, str]:
        lines = (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines()
        return dict(
            line.split(" ")[0].split("==") for line in lines if "==" in line and not line.startswith((" ", "#"))
        )

    tested = pins("dev.txt")
    for name in ("runtime.txt", "build.txt"):
        assert {package: tested.get(package) for package in pins(name)} == pins(name)
