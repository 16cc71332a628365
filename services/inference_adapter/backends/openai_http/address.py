"""Where an engine listens."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from streamway.runtime.process import StartError


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """A TCP endpoint or a unix socket; `prefix` is the path under which `/v1/…` lies, without a slash at its end."""

    host: str
    port: int
    socket_path: str
    prefix: str

    @property
    def authority(self) -> str:
        """For the Host header."""
        if self.socket_path:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == 80 else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"unix:{self.socket_path}" if self.socket_path else f"http://{self.authority}{self.prefix}"


def parse(url: str) -> EngineAddress:
    """Reads `http://host:port[/prefix][/v1]` or `unix:/path`. Raises StartError."""
    if url.startswith("unix:"):
        path = url.removeprefix("unix://").removeprefix("unix:")
        if not path.startswith("/"):
            raise StartError(f"the engine's address {url!r} needs an absolute path: unix:/path/to.sock")
        if len(path.encode()) > 107:
            raise StartError(
                f"the engine's socket path is longer than the 107 bytes that a unix socket can have: {path}"
            )
        return EngineAddress("", 0, path, "")
    parts = urlsplit(url)
    try:
        port = parts.port or 80
    except ValueError:
        port = 0
    if parts.scheme != "http" or not parts.hostname or not port:
        raise StartError(f"the engine's address {url!r} is neither http://host:port nor unix:/path")
    if parts.username or parts.query:
        raise StartError("the engine's address has more than host, port and path; give its key as the engine token")
    return EngineAddress(parts.hostname, port, "", parts.path.rstrip("/").removesuffix("/v1"))
