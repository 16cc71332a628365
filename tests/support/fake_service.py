"""A stand-in for any service process, as far as a supervisor can tell: settings, operations port, signals.

It writes each start and end with its arguments to the file in FAKE_JOURNAL. FAKE_LOAD_S delays readiness, FAKE_REFUSE names a
kind that refuses to start, FAKE_CRASH a file whose existence makes the next start of a process crash.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

PORTS = {"cache": 7002, "router": 7001, "adapter": 7010, "edge": 8080}


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def kind_of(options: dict[str, str]) -> str:
    return next(
        kind for option, kind in (("worker", "adapter"), ("index", "edge"), ("", "single")) if option in {*options, ""}
    )


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--print-config"]
    options = {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)}
    kind = kind_of(options)
    if "--print-config" in sys.argv:
        if os.environ.get("FAKE_MISSPELT"):
            sys.exit("cannot start: unknown setting STREAMWAY_EDGE_PRT; did you mean STREAMWAY_EDGE_PORT?")
        config = {"host": "127.0.0.1", "operations_host": "127.0.0.1", "operations_port": None}
        say(json.dumps({kind: {**config, "port": port} for kind, port in PORTS.items()}))
        return
    if os.environ.get("FAKE_REFUSE") == kind:
        say("cannot start: no luck today; try tomorrow")
        sys.exit(2)
    crash = Path(os.environ["FAKE_CRASH"])
    if kind == "adapter" and crash.exists():
        crash.unlink()
        os.abort()
    ready_at = time.monotonic() + (float(os.environ.get("FAKE_LOAD_S", "0")) if kind == "adapter" else 0)

    class Ready(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            loaded = time.monotonic() >= ready_at
            self.send_response(200 if loaded else 503)
            self.end_headers()
            self.wfile.write(b"ready" if loaded else b"loading the model")

        def log_message(self, *arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", int(options["operations-port"])), Ready)
    Thread(target=server.serve_forever, daemon=True).start()
    name = options.get("worker") or (f"edge-{options['index']}" if kind == "edge" else kind)
    journal = Path(os.environ["FAKE_JOURNAL"])

    def write(what: str) -> None:
        with journal.open("a") as file:
            file.write(f"{what} {name} {os.getpid()} {os.environ['STREAMWAY_VALKEY_URL']}\n")

    def end(*_: object) -> None:
        write("end")
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, lambda *_: write("interrupted"))
    write("start")
    say(f"\x1b[32m{name} says hello\x1b[0m")
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
