"""Settings: typed, frozen, checked at start; command line > environment > streamway.yaml > default."""

from streamway.config.base import SERVICE_PREFIXES, ServiceSettings, load
from streamway.config.placeholders import FilledText
from streamway.config.shared import SharedSettings

__all__ = ["SERVICE_PREFIXES", "FilledText", "ServiceSettings", "SharedSettings", "load"]
