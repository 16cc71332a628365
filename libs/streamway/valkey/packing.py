"""Commands as bytes, for those that are sent over a raw link."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import hiredis

# One whole command from its words, each str, bytes, int or float. hiredis has no types of its own.
pack: Final[Callable[[tuple[Any, ...]], bytes]] = hiredis.pack_command
