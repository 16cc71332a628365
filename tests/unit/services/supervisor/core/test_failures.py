"""Whether workers may be killed from the console, and which deed means anything."""

from __future__ import annotations

import pytest

from services.supervisor.core.failures import Deed, State, TryFailure, allowed, follows


@pytest.mark.parametrize(
    ("setting", "host", "has_credentials", "may"),
    [
        (TryFailure.AUTO, "127.0.0.1", False, True),
        (TryFailure.AUTO, "::1", False, True),
        (TryFailure.AUTO, "127.0.0.1", True, False),
        (TryFailure.AUTO, "0.0.0.0", False, False),
        (TryFailure.AUTO, "192.0.2.7", True, False),
        (TryFailure.ON, "0.0.0.0", True, True),
        (TryFailure.OFF, "127.0.0.1", False, False),
    ],
)
def test_off_beyond_loopback_and_where_somebody_has_keys_unless_it_is_asked_for(
    setting: TryFailure, host: str, has_credentials: bool, may: bool
) -> None:
    assert allowed(setting, host, has_credentials=has_credentials) is may


@pytest.mark.parametrize(
    ("state", "deeds"),
    [
        (State.RUNNING, {Deed.KILL, Deed.PAUSE}),
        (State.PAUSED, {Deed.KILL, Deed.GO_ON}),
        (State.DOWN, set()),
    ],
)
def test_only_what_follows_is_done(state: State, deeds: set[Deed]) -> None:
    assert {deed for deed in Deed if follows(state, deed)} == deeds
