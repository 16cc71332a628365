"""Which workers are asked to exchange their weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

# Of others nobody here has started the engine.
_OURS: Final = ("llamacpp", "llamacpp_inside")


def chosen(leases: Mapping[str, Mapping[str, str]], wanted: Sequence[str]) -> tuple[list[str], str]:
    """The names, in the order in which they are asked, of all workers with a llama.cpp or of those `wanted`; and why nobody is
    asked, "" where somebody is."""
    unknown = sorted({*wanted} - leases.keys())
    if unknown:
        return [], f"there is no worker {unknown[0]!r}; there are {', '.join(sorted(leases)) or 'none'}"
    names = list(dict.fromkeys(wanted)) or sorted(name for name in leases if leases[name].get("engine") in _OURS)
    return names, "" if names else "no worker has a llama.cpp; other engines load their weights themselves"
