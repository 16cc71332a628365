"""Who is calling: the mesh token between services, API keys from clients."""

from streamway.auth.credentials import Credentials
from streamway.auth.exposure import exposure_objection, refuse_open_exposure, watch_tenancy
from streamway.auth.identity import ANONYMOUS, Identity
from streamway.auth.standing import ShownStanding, Standing
from streamway.runtime.address import is_loopback
from streamway.tenancy import hash_key

__all__ = [
    "ANONYMOUS",
    "Credentials",
    "Identity",
    "ShownStanding",
    "Standing",
    "exposure_objection",
    "hash_key",
    "is_loopback",
    "refuse_open_exposure",
    "watch_tenancy",
]
