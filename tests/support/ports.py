"""Free ports for processes that a test starts."""

from __future__ import annotations

from services.supervisor.io.ports import candidates, is_free

_free = filter(is_free, candidates())


def free_port() -> int:
    """A TCP port of loopback that nothing listens on now; each one once in a process."""
    return next(_free)
