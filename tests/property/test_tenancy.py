"""Whatever is in the files that say who the tenants are: it is taken whole, or refused with one line and without a secret."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from streamway.config import SharedSettings, strict_yaml
from streamway.runtime.process import StartError
from streamway.tenancy import Tenancy, hash_key, load_tenancy

SECRET = "sw-very-secret-value"
_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from([SECRET, "gold", "unlimited", hash_key("a"), "acme", "🐈"]),
)
_names = st.one_of(
    st.sampled_from(
        [
            "tenants",
            "tiers",
            "keys",
            "tier",
            "weight",
            "models",
            "default_tier",
            "anonymous",
            "concurrency",
            "acme",
            "gold",
        ]
    ),
    # Names are told, so that they can be found; values never are.
    _scalars.filter(lambda name: name != SECRET),
)
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=4), max_leaves=12
)


def _load(text: bytes, *, keys: bool = False) -> Tenancy | str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tenants.yaml"
        path.write_bytes(text)
        shared = SharedSettings(api_keys_file=path) if keys else SharedSettings(tenants_file=path)
        try:
            return load_tenancy(shared)
        except StartError as refused:
            return str(refused)


def _is_good(found: Tenancy | str) -> None:
    if isinstance(found, str):
        assert "\n" not in found
        assert SECRET not in found
        return
    for tenant in found.tenants.values():
        assert tenant.weight >= 1
        assert -128 <= tenant.highest_priority <= 127
        for quota in (tenant.quota, *tenant.model_quotas.values()):
            for limit in (quota.concurrency, quota.requests_per_minute, quota.tokens_per_minute):
                assert limit is None or limit >= 1
    assert all(found.tenant(owner) is not None for owner in found.keys.values())


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_a_tenancy_or_one_line_of_refusal(content: bytes, keys: bool) -> None:
    _is_good(_load(content, keys=keys))


@given(st.dictionaries(_names, _values, max_size=4), st.booleans())
def test_any_yaml_is_a_tenancy_or_one_line_of_refusal(content: object, keys: bool) -> None:
    _is_good(_load(yaml.safe_dump(content, allow_unicode=True).encode(errors="replace"), keys=keys))


@given(st.text(alphabet=st.sampled_from("{}[]:,-&*<!? \n\t'\"|>%@`#0123abcé\x85\x00"), max_size=60))
def test_any_punctuation_is_parsed_or_refused_as_a_value_error(text: str) -> None:
    refused = ""
    try:
        strict_yaml.parse(text)
    except ValueError as problem:
        refused = str(problem)
    assert "\n" not in refused


@given(st.dictionaries(st.text(max_size=5), st.integers(), max_size=5))
def test_what_is_written_is_read(content: dict[str, int]) -> None:
    assert strict_yaml.parse(yaml.safe_dump(content)) == content


def test_a_merge_may_be_overridden_but_no_key_stands_twice() -> None:
    text = "base: &base {a: 1, b: 2}\nmade: {<<: *base, b: 3}\n"
    assert strict_yaml.parse(text)["made"] == {"a": 1, "b": 3}
    with pytest.raises(ValueError, match="'b' stands there twice"):
        strict_yaml.parse("made: {b: 1, b: 2}")
