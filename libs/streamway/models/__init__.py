"""Names of models beside those that workers serve: aliases, fallbacks, choices between a large and a small one."""

from streamway.models.loading import load_models
from streamway.models.routing import Choice, ModelRouting

__all__ = ["Choice", "ModelRouting", "load_models"]
