"""llama.cpp's own server in a process of its own: `python -m services.inference_adapter.backends.llamacpp_child`.

A process of its own because the server keeps the GIL and the cores busy, and because a crash in native code must not take
the adapter with it. It speaks HTTP on a unix socket and says `ready` or `failed …` in one line on its standard output.

It must never outlive its adapter, which may be killed without warning: the kernel kills it when the parent dies (Linux), and
everywhere the end of its standard input ends it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
from typing import Any

from services.inference_adapter.core.fitting import PREFILL_BATCH, Shape
from streamway.runtime.processes import die_with_parent


def configure(native: Any, *, model: str, name: str, socket: str, threads: int, shape: Shape) -> Any:
    """How llama.cpp is started, whether it has a process of its own or not."""
    settings = native.CommonParams()
    settings.model.path = model
    settings.model_alias = {name}
    settings.hostnames = [socket]
    settings.ui = False
    settings.n_parallel = shape.slots
    settings.n_threads_http = shape.slots + 4  # one for each stream, and room for health checks beside them
    settings.n_ctx = shape.context_tokens * shape.slots
    settings.cache_ram_mib = shape.cache_mib
    settings.n_batch = settings.n_ubatch = PREFILL_BATCH
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = threads
    settings.endpoint_metrics = settings.endpoint_slots = settings.endpoint_props = True
    settings.slot_save_path = shape.slot_folder
    settings.sleep_idle_seconds = shape.sleep_s or -1
    return settings


def main() -> None:
    words = argparse.ArgumentParser(prog="llamacpp_child")
    words.add_argument("--model", required=True)
    words.add_argument("--name", required=True)
    words.add_argument("--socket", required=True)
    words.add_argument("--shape", required=True, help="JSON")
    words.add_argument("--threads", type=int, required=True)
    words.add_argument("--cores", default="", help="0,1,2; empty: all")
    words.add_argument("--parent", type=int, required=True)
    given = words.parse_args()
    die_with_parent(given.parent)
    if given.cores:
        # Before llama.cpp makes its threads, which inherit it.
        os.sched_setaffinity(0, map(int, given.cores.split(",")))
    for number in (signal.SIGINT, signal.SIGTERM):
        # Without handlers of its own llama.cpp's destructor may hang on a request; there is nothing to save here.
        signal.signal(number, lambda *_: os._exit(0))
    # OpenMP's threads spin while they wait: with as many threads as cores that gives token gaps of seconds. Read when
    # llama.cpp is loaded, so before the import.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    try:
        import xllamacpp
    except ImportError as problem:
        _say(f"failed xllamacpp cannot be imported ({problem}); install streamway[llamacpp]")
        sys.exit(3)
    native: Any = xllamacpp
    settings = configure(
        native,
        model=given.model,
        name=given.name,
        socket=given.socket,
        threads=given.threads,
        shape=Shape(**json.loads(given.shape)),
    )
    try:
        server = native.Server(settings)
    except Exception as problem:  # noqa: BLE001 - native code raises what it likes; the parent tells it in one line
        _say(f"failed {problem}")
        sys.exit(3)
    _say("ready")
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    del server
    os._exit(0)


def _say(line: str) -> None:
    os.write(1, (" ".join(line.split()) + "\n").encode())


if __name__ == "__main__":
    main()
