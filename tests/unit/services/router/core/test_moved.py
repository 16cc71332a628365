from __future__ import annotations

import pytest

from services.router.core.moved import holder

THERE = {"a", "b", "c"}.__contains__


@pytest.mark.parametrize(
    ("recorded", "writer", "ended", "found"),
    [
        pytest.param("b", "a", False, "b", id="given to another that has not begun"),
        pytest.param("", "b", False, "b", id="in the pool, from which another has begun it"),
        pytest.param("a", "b", False, "b", id="begun before the record was changed"),
        pytest.param("b", "c", False, "b", id="moved once more"),
        pytest.param("a", "a", False, "", id="still where it was"),
        pytest.param("", "", False, "", id="nobody's yet"),
        pytest.param("z", "a", False, "", id="given to one that cannot be reached"),
        pytest.param("b", "b", True, "b", id="ended by the other"),
        pytest.param("b", "a", True, "", id="ended by the one that had left it"),
        pytest.param("b", "router-0", True, "", id="ended by a router, for a cancel"),
    ],
)
def test_the_end_is_of_the_worker_that_has_it_after_the_one_that_left_it(
    recorded: str, writer: str, ended: bool, found: str
) -> None:
    assert holder("a", recorded, writer, ended=ended, there=THERE) == found
