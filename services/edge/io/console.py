"""The console at `/`: the files of `static/`, read once, with a policy that lets them load nothing from elsewhere."""

from __future__ import annotations

import hashlib
import mimetypes
import re
from pathlib import Path
from typing import Final

from aiohttp import web

from services.edge.io.gate import Gate
from services.edge.io.http_errors import json_response

# Nothing from elsewhere, no code but that of these files, and no text that becomes markup (Trusted Types, where a browser has
# them). Not every browser takes 'self' for WebSockets too, so the page's own host is named.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'{sockets}; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HOST: Final = re.compile(r"[A-Za-z0-9.:\[\]-]{1,255}")
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    # The browser asks each time and mostly hears 304, so that a new edge is a new console.
    "Cache-Control": "no-cache",
}
_INDEX: Final = "index.html"


def policy_for(host: str) -> str:
    """The Content-Security-Policy of a page that was asked for under this Host header."""
    return _POLICY.format(sockets=f" ws://{host} wss://{host}" if _HOST.fullmatch(host) else "")


class ConsoleSurface:
    """Serves the files under `folder`; those that start with a dot are left out. `trace_url` is told to who is let in."""

    def __init__(self, gate: Gate, folder: Path, trace_url: str) -> None:
        self._gate = gate
        self._trace_url = trace_url
        self._files: dict[str, tuple[bytes, str, str]] = {}
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            name = path.relative_to(folder)
            if path.is_file() and not any(part.startswith(".") for part in name.parts):
                content = path.read_bytes()
                kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
                self._files[name.as_posix()] = (content, kind, hashlib.sha256(content).hexdigest()[:32])

    async def get(self, request: web.Request) -> web.StreamResponse:
        """One file, or 404."""
        self._gate.check_origin(request)
        found = self._files.get(request.match_info.get("name", "") or _INDEX)
        if found is None:
            raise web.HTTPNotFound
        content, kind, tag = found
        response = web.Response(
            headers={**_HEADERS, "Content-Security-Policy": policy_for(request.headers.get("Host", ""))}
        )
        response.etag = tag
        given = request.if_none_match
        if given and any(etag.value == tag for etag in given):
            response.set_status(304)
            return response
        response.body = content
        response.content_type = kind
        if kind.startswith("text/") or kind.endswith(("javascript", "json")):
            response.charset = "utf-8"
        return response

    async def told(self, request: web.Request) -> web.StreamResponse:
        """`GET /v1/console`: what the pages must know of this mesh."""
        self._gate.admit(request)
        return json_response({"trace_url": self._trace_url})
