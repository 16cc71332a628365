"""Settings that two services must agree on."""

from __future__ import annotations

from services.edge.settings import EdgeSettings
from services.inference_adapter.settings import AdapterSettings


def test_a_connection_can_be_restored_as_long_as_workers_wait() -> None:
    workers = AdapterSettings.model_fields["resume_grace_s"].default
    assert EdgeSettings.model_fields["resume_grace_s"].default == workers


def test_a_paused_generation_is_touched_well_within_every_grace() -> None:
    from services.edge.io.desk import _TOUCH_S

    assert AdapterSettings.model_fields["orphan_grace_s"].default > _TOUCH_S * 2
