"""Who is calling: the mesh token between services, API keys from clients."""

from streamway.auth.exposure import is_loopback, refuse_open_exposure
from streamway.auth.identity import ANONYMOUS, Identity
from streamway.auth.keys import ApiKeys
from streamway.tenancy import hash_key

__all__ = ["ANONYMOUS", "ApiKeys", "Identity", "hash_key", "is_loopback", "refuse_open_exposure"]
