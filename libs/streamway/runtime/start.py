"""Why a process does not start."""

from __future__ import annotations


class StartError(Exception):
    """The process cannot start. The message is one line and says what to do."""
