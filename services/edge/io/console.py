"""The console at `/`: the files of `static/`, read once, with a policy that lets them load nothing from elsewhere."""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path
from typing import Final

from aiohttp import web

from services.edge.io.gate import Gate

_POLICY: Final = (
    "default-src 'self'; connect-src 'self' ws: wss:; style-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # The browser asks each time and mostly hears 304, so that a new edge is a new console.
    "Cache-Control": "no-cache",
}
_INDEX: Final = "index.html"


class ConsoleSurface:
    """Serves the files under `folder`; those that start with a dot are left out."""

    def __init__(self, gate: Gate, folder: Path) -> None:
        self._gate = gate
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
        response = web.Response(headers=_HEADERS)
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
