"""What a process that a test starts tells of itself: one line of JSON, a complaint, a last word; then it ends as it was told.

Arguments: the number of a descriptor that it reads, and the code it ends with, or "wait".
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from pathlib import Path

from streamway.telemetry.context import begin


def main() -> None:
    number, end = sys.argv[1:]
    told = {
        "group": os.getpgid(0),
        "pid": os.getpid(),
        "title": Path("/proc/self/cmdline").read_text(encoding="utf-8").replace("\0", " ").strip(),
        "environment": dict(os.environ),
        "read": os.read(int(number), 10).decode(),
        "open": sorted(int(each.name) for each in Path("/proc/self/fd").iterdir()),
        "trace": begin("").trace_id,
    }
    sys.stdout.write(f"{json.dumps(told)}\n")
    sys.stderr.write("a complaint\n")
    atexit.register(sys.stdout.write, "a last word")
    if end == "wait":
        time.sleep(60)
    sys.exit(int(end))


if __name__ == "__main__":
    main()
