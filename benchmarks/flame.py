"""Where the time of each process of a mesh goes, as flame graphs: make flame.

    python -m benchmarks.flame --surface websocket --streams 300 --seconds 15

Starts a simulated engine, a mesh and a load, and has py-spy look into every process of the mesh at once, a hundred times a
second. One SVG for each, in .build/flame: wider is longer. py-spy is installed into an environment of its own. It reads the
memory of other processes: that takes root, or `sysctl kernel.yama.ptrace_scope=0`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.environment import environment
from benchmarks.run import Mesh

_ROOT: Final = Path(__file__).parents[1]
_PY_SPY: Final = "py-spy==0.4.3"


def record(py_spy: Path, mesh: Mesh, seconds: int, folder: Path) -> dict[str, Path]:
    """The pictures, by the name of their process; those that could not be looked into are told and left out."""
    folder.mkdir(parents=True, exist_ok=True)
    looking = {}
    for name, pid in mesh.pids.items():
        if name == "valkey":
            continue  # it is not written in Python
        path = folder / f"{name}.svg"
        path.unlink(missing_ok=True)
        # fmt: off
        command = [
            str(py_spy), "record", "--pid", str(pid), "--duration", str(seconds), "--rate", "100", "--output", str(path),
            "--nonblocking",
        ]
        # fmt: on
        looking[name] = path, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    made = {}
    for name, (path, process) in looking.items():
        _, said = process.communicate(timeout=seconds + 120)
        if process.returncode == 0 and path.exists():
            made[name] = path
        else:
            problem = said.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
            print(f"{name} was not looked into: {problem[0]}", file=sys.stderr)
    return made


def main() -> None:
    """Parses the command line, runs, says where the pictures are."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.flame", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--surface", choices=["sse", "websocket", "grpc", "rest"], default="sse")
    parser.add_argument("--durability", choices=["off", "relaxed", "strict"], default="relaxed")
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--tokens-per-s", type=float, default=20.0)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=_ROOT / ".build" / "flame")
    options = parser.parse_args()
    py_spy = environment(_ROOT / ".build" / "py-spy", (_PY_SPY,)).parent / "py-spy"
    with tempfile.TemporaryDirectory() as folder, Mesh(Path(folder), options.tokens_per_s, options.streams) as mesh:
        tokens = int((options.seconds + 10) * options.tokens_per_s)
        how = ("--durability", options.durability, "--ramp-s", 2, "--limit-s", 3 * options.seconds + 60)
        command = mesh.load(options.surface, options.streams, tokens, *how)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as load:
            time.sleep(4.0)
            made = record(py_spy, mesh, options.seconds, options.out)
            load.terminate()
    for name, path in made.items():
        print(f"{name}: {path}")
    if not made:
        sys.exit("no process was looked into; py-spy needs root, or sysctl kernel.yama.ptrace_scope=0")


if __name__ == "__main__":
    main()
