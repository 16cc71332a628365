"""Keys do not depend on how a request is written down, nor on the process that reads it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streamway.cachekey.canonical import canonical_form, encode
from streamway.cachekey.key import exact_key
from streamway.v1 import common_pb2

REPOSITORY = Path(__file__).parents[2]
scalars = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    scalars | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=10,
)
bodies = st.dictionaries(st.sampled_from(["messages", "temperature", "top_p", "stop", "x", "response_format"]), values)


def key_of(text: str) -> bytes:
    request = common_pb2.GenerationRequest(model="m", openai_body=text.encode())
    return exact_key("t", "m", canonical_form(request))


def shuffled(value: Any, draw: random.Random) -> Any:
    if isinstance(value, dict):
        items = list(value.items())
        draw.shuffle(items)
        return {name: shuffled(item, draw) for name, item in items}
    return [shuffled(item, draw) for item in value] if isinstance(value, list) else value


@given(bodies, st.randoms(use_true_random=False), st.sampled_from([None, 0, 3]), st.booleans())
def test_key_order_white_space_and_escapes_do_not_count(
    body: dict[str, Any], draw: random.Random, indent: int | None, ascii_only: bool
) -> None:
    other = json.dumps(shuffled(body, draw), indent=indent, ensure_ascii=ascii_only)
    assert key_of(other) == key_of(json.dumps(body))


def tagged(value: Any) -> Any:
    """JSON equality, in which true is not 1 but 1.0 is 1."""
    if isinstance(value, dict):
        return ("d", {name: tagged(item) for name, item in value.items()})
    if isinstance(value, list):
        return ("l", [tagged(item) for item in value])
    return (type(value).__name__ if isinstance(value, bool | str | None) else "number", value)


@given(values, values)
def test_bytes_are_equal_exactly_when_values_are(one: Any, other: Any) -> None:
    assert (encode(one) == encode(other)) == (tagged(one) == tagged(other))


@given(st.text(alphabet="ab:|\x00", max_size=6), st.text(alphabet="ab:|\x00", max_size=6), st.integers(0, 6))
def test_separators_in_tenant_and_model_never_meet(tenant: str, model: str, cut: int) -> None:
    joined = tenant + model
    other = (joined[:cut], joined[cut:])
    same = other == (tenant, model)
    assert (exact_key(*other, {}) == exact_key(tenant, model, {})) == same


_PROGRAM = """
import hashlib, json, random, sys
from streamway.cachekey.canonical import canonical_form
from streamway.cachekey.key import exact_key
from streamway.v1 import common_pb2

def shuffled(value, draw):
    if isinstance(value, dict):
        items = list(value.items()); draw.shuffle(items)
        return {name: shuffled(item, draw) for name, item in items}
    return [shuffled(item, draw) for item in value] if isinstance(value, list) else value

content, order = random.Random(7), random.Random(sys.argv[1])
total = hashlib.sha256()
for _ in range(2500):
    body = {"messages": [{"role": "user", "content": str(content.random())}], "temperature": content.choice([0, 0.0, 0.5]),
            "logit_bias": {str(content.randrange(99)): content.randrange(-9, 9) for _ in range(5)}, "seed": content.randrange(9),
            "stop": content.choice([None, [], "x", ["y", "x"]]),
            "response_format": {"type": "json_object", "a": {"b": 1, "c": [2]}}}
    text = json.dumps(shuffled(body, order), indent=order.choice([None, 1]))
    request = common_pb2.GenerationRequest(model="m", openai_body=text.encode())
    total.update(exact_key("t", "m", canonical_form(request)))
print(total.hexdigest())
"""


def test_ten_thousand_shuffled_requests_have_the_same_keys_in_four_processes_with_different_hash_seeds() -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(seed)],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(1, 5)
    ]
    assert len(set(runs)) == 1
