"""Compares the contracts with those of an earlier state: `buf breaking`, offline.

python scripts/check_breaking.py [REVISION]      default: origin/main, where it exists
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
AGAINST: Final = ROOT / ".build" / "against"


def main() -> int:
    """0 when nothing is broken or there is nothing to compare with."""
    revision = sys.argv[1] if len(sys.argv) > 1 else "origin/main"
    if _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").returncode:
        print(f"contracts: {revision} does not exist here, nothing to compare with")
        return 0
    if not _git("ls-tree", "--name-only", revision, "protos/").stdout:
        print(f"contracts: {revision} has none yet")
        return 0
    shutil.rmtree(AGAINST, ignore_errors=True)
    AGAINST.mkdir(parents=True)
    archive = _git("archive", revision, "protos", "buf.yaml").stdout
    subprocess.run(["/bin/tar", "-x", "-C", str(AGAINST)], input=archive, check=True)
    # The google/rpc files that ours import are not in the repository.
    shutil.copytree(ROOT / ".build" / "googleapis", AGAINST / ".build" / "googleapis")
    buf = Path(sys.executable).parent / "buf"
    return subprocess.run([str(buf), "breaking", "--against", str(AGAINST)], check=False, cwd=ROOT).returncode


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["/usr/bin/env", "git", *words], check=False, cwd=ROOT, stdout=subprocess.PIPE)


if __name__ == "__main__":
    sys.exit(main())
