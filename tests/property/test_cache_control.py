"""The parser of `Cache-Control` against headers written from what they mean, and against anything at all."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.edge.core.cache_control import parse
from streamway.v1.common_pb2 import CacheControl

NAMES = ("no-cache", "no-store", "only-if-cached")
OTHERS = (
    "no-transform",
    "min-fresh=5",
    "max-stale",
    'community="UCI, no-store"',
    'x="a\\", no-cache"',
    "proxy-revalidate",
)
SPACE = st.text(" \t", max_size=2)


@st.composite
def headers(draw: st.DrawFn) -> tuple[str, CacheControl]:
    """A header, and what it asks."""
    wanted, members = CacheControl(), []
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(("flag", "age", "other", "empty")))
        if kind == "flag":
            name = draw(st.sampled_from(NAMES))
            setattr(wanted, name.replace("-", "_"), True)
            members.append(draw(st.sampled_from((name, name.upper(), name.title()))))
        elif kind == "age":
            seconds = draw(st.integers(0, 2**40))
            if not wanted.HasField("max_age_s"):
                wanted.max_age_s = min(seconds, 2**31 - 1)
            text = draw(st.sampled_from((f"{seconds}", f'"{seconds}"', f"00{seconds}")))
            members.append(f"{draw(st.sampled_from(('max-age', 'Max-Age')))}{draw(SPACE)}={draw(SPACE)}{text}")
        else:
            members.append(draw(st.sampled_from(OTHERS)) if kind == "other" else "")
    padded = [draw(SPACE) + member + draw(SPACE) for member in members]
    return ",".join(padded), wanted


@given(headers())
def test_a_header_is_read_as_it_was_written(made: tuple[str, CacheControl]) -> None:
    header, wanted = made
    assert (parse(header) or CacheControl()) == wanted


@given(st.one_of(st.text(max_size=200), st.text('",=\\ max-ageno0123', max_size=200)))
def test_no_header_is_an_error(header: str) -> None:
    read = parse(header)
    assert read is None or read.ListFields()
    assert read is None or read.max_age_s < 2**31


@given(st.text(string.ascii_letters + "-+. ", min_size=0, max_size=10))
def test_an_age_that_can_not_be_read_is_none_at_all(text: str) -> None:
    read = parse(f"max-age={text}")
    assert read is not None
    assert read.max_age_s == 0


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("max-age=60, max-age=5", CacheControl(max_age_s=60)),
        ("max-age=5, no-cache", CacheControl(max_age_s=5, no_cache=True)),
        ('no-cache="set-cookie"', CacheControl(no_cache=True)),
        ("max-age", CacheControl(max_age_s=0)),
        ("max-age=-1", CacheControl(max_age_s=0)),
        ("max-age=1.5", CacheControl(max_age_s=0)),
        ("max-age=٣", CacheControl(max_age_s=0)),
        ("x-no-cache, no-cacheable", None),
        ('x="no-cache, no-store', None),
        ("", None),
    ],
)
def test_what_rfc_9111_says_of_odd_ones(header: str, wanted: CacheControl | None) -> None:
    assert parse(header) == wanted
