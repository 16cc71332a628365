"""Slots of a llama.cpp that is ours: sessions stay in theirs, and are carried to another engine as files.

    take ──► seat: a slot's number, or the engine's choice ──► the call ──► leave
      └ a file is there: POST /slots/N?action=restore first
    park: POST /slots/N?action=save for each session that has ended a call since it was last saved

A file holds what a session has said, as keys and values. Its name tells nothing; the folder is open to its owner alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from services.inference_adapter.core.slots import Seat, Slots
from streamway.errors import EngineFailed
from streamway.v1 import common_pb2

_log = structlog.get_logger("adapter")
_OURS: Final = re.compile(r"[0-9a-f]{40}\.kv")
# Asks the engine with a POST, within so many seconds: status and body. Raises EngineFailed.
Ask = Callable[[str, bytes, float], Awaitable[tuple[int, bytes]]]
# A drain waits for this.
_SAVE_S: Final = 5.0


class SlotFiles:
    """KV of sessions in a folder that several workers share. Of the oldest so many go that `most_bytes` are left, and what is
    older than `ttl_s`."""

    def __init__(self, folder: Path, fingerprint: str, most_bytes: int, ttl_s: float) -> None:
        self._folder = folder
        self._fingerprint = fingerprint
        self._most_bytes = most_bytes
        self._ttl_s = ttl_s

    def name(self, session: str) -> str:
        """The session's file. KV of other weights has another."""
        return hashlib.sha256(f"{self._fingerprint}\0{session}".encode()).hexdigest()[:40] + ".kv"

    def has(self, session: str) -> bool:
        """Whether there is one for it."""
        return (self._folder / self.name(session)).is_file()

    def drop(self, session: str) -> None:
        """It is in an engine again, or of no use."""
        (self._folder / self.name(session)).unlink(missing_ok=True)

    def open(self) -> None:
        """Makes the folder, for this user only."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.trim()

    def trim(self) -> None:
        """Keeps the bounds."""
        found = []
        for path in self._folder.iterdir():
            if _OURS.fullmatch(path.name):
                with contextlib.suppress(FileNotFoundError):
                    stat = path.stat()
                    found.append((stat.st_mtime, stat.st_size, path))
        left, oldest = self._most_bytes, time.time() - self._ttl_s
        for at, size, path in sorted(found, reverse=True):
            left -= size
            if left < 0 or at < oldest:
                path.unlink(missing_ok=True)


class _Saved(msgspec.Struct):
    n_saved: int = 0
    n_restored: int = 0


class SlotKeeper:
    """Gives calls their slots. `files` None: nothing is carried. `load_s`: an engine that slept may load its model for so long
    before it reads a file."""

    def __init__(self, count: int, ask: Ask, files: SlotFiles | None, load_s: float) -> None:
        self._load_s = load_s
        self.slots = Slots(count)
        self._ask = ask
        self._files = files
        self._unsaved: set[str] = set()
        self.saved = self.restored = 0

    def take(self, request: common_pb2.GenerationRequest, choices: int) -> Seat:
        """A seat for a call."""
        session = f"{request.tenant}\0{request.model}\0{request.session}" if request.session else ""
        saved = self._files is not None and session != "" and not self.slots.knows(session) and self._files.has(session)
        return self.slots.take(session, choices, saved=saved)

    def leave(self, seat: Seat) -> None:
        """Its call is over."""
        self.slots.leave(seat)
        if seat.session:
            self._unsaved.add(seat.session)

    async def restore(self, seat: Seat) -> None:
        """Reads the KV of a seat's session from its file into the seat's slot."""
        assert self._files is not None
        said = await self._slot_action("restore", seat.slot, seat.session, self._load_s)
        # Read or of no use: in either case it is not asked for again.
        self._files.drop(seat.session)
        self.restored += said is not None and said.n_restored > 0

    async def park(self) -> None:
        """Writes what was not written yet, of slots that nobody works in."""
        if self._files is None:
            return
        homes = self.slots.homes
        self._unsaved &= homes.keys()
        for session in list(self._unsaved):
            if homes[session] in self.slots.idle:
                said = await self._slot_action("save", homes[session], session, _SAVE_S)
                self._unsaved.discard(session)
                self.saved += said is not None and said.n_saved > 0
        self._files.trim()

    async def _slot_action(self, action: str, slot: int | None, session: str, within_s: float) -> _Saved | None:
        assert self._files is not None
        begun = time.monotonic()
        body = msgspec.json.encode({"filename": self._files.name(session)})
        try:
            status, answer = await self._ask(f"/slots/{slot}?action={action}", body, within_s)
            said = msgspec.json.decode(answer, type=_Saved) if status == 200 else None
        except (EngineFailed, msgspec.DecodeError, UnicodeDecodeError):
            status, said = 0, None
        took_ms = round((time.monotonic() - begun) * 1000)
        if said is None:
            _log.warning(f"slot_not_{action}d", slot=slot, status=status)
        else:
            _log.info(f"slot_{action}d", slot=slot, tokens=said.n_saved or said.n_restored, took_ms=took_ms)
        return said
