"""The last chat of this machine, so that `streamway chat --resume` goes on with it. Only its owner can read the file."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

import msgspec

FILE_NAME: Final = "chat.json"
# A chat that has grown beyond this is not kept: reading it back must stay quick.
_MOST_BYTES: Final = 8 * 1024 * 1024


class Turn(msgspec.Struct, frozen=True):
    """One message: whose, and what."""

    role: str
    content: str


class Kept(msgspec.Struct, frozen=True):
    """A conversation, and the answer that is being read."""

    router: str
    model: str
    turns: tuple[Turn, ...] = ()
    # Of the answer that has not ended: what was asked, its generation, what was shown of it and the cursor behind that.
    question: str = ""
    generation: str = ""
    shown: str = ""
    epoch: int = 0
    position: int = 0


class ChatFile:
    """`chat.json` in a folder of this user."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME

    def read(self) -> Kept | None:
        """The last chat; None where there is none, or what is there is none."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Kept)
        except (OSError, msgspec.DecodeError):
            return None

    def write(self, kept: Kept) -> None:
        """Puts it in the place of what was there, whole or not at all. A folder that cannot be written to keeps nothing."""
        content = msgspec.json.encode(kept)
        if len(content) > _MOST_BYTES:
            return
        new = self._path.with_suffix(f".{os.getpid()}.new")
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(content)
            new.replace(self._path)
