"""What a cache process does before it imports anything large."""

from __future__ import annotations

import subprocess
import sys


def test_numpy_is_told_to_use_one_core_before_it_is_imported() -> None:
    """A process of its own: here numpy has been imported long ago."""
    script = (
        "import os, sys\n"
        "os.environ.pop('OPENBLAS_NUM_THREADS', None)\n"
        "import services.cache.__main__ as main\n"
        "early = 'numpy' in sys.modules\n"
        "app = main.build()\n"
        "print(early, os.environ['OPENBLAS_NUM_THREADS'], 'numpy' in sys.modules, 'faiss' in sys.modules)\n"
    )
    environment = {"PATH": "", "STREAMWAY_CACHE_ENCODER": "off"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == ["False", "1", "True", "False"]
