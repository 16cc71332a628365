"""Which conversation a request belongs to, so that it goes where its KV cache is (docs/design.md §6)."""

from streamway.affinity import session_key
from streamway.affinity.requests import key_of

__all__ = ["key_of", "session_key"]
