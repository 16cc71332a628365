"""What is left in a bucket, from what the store holds."""

from __future__ import annotations

import pytest

from streamway.quota.usage import level


@pytest.mark.parametrize(
    ("stored", "left"),
    [
        (None, 60.0),
        (b"10.000000 1000", 10.0),
        (b"10.000000 -29000", 40.0),  # half a minute ago
        (b"-5.000000 1000", -5.0),  # debt
        (b"10.000000 9000", 10.0),  # written by a clock that is ahead
        (b"", 60.0),
        (b"what 7", 60.0),
    ],
)
def test_a_bucket_is_read_as_the_script_would(stored: bytes | None, left: float) -> None:
    assert level(stored, 60, 1000.0) == left
