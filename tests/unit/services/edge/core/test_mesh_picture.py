"""What the console is told of the mesh, from leases that may say anything."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from services.edge.core import mesh_picture
from services.edge.core.mesh_picture import MOST_ROWS, MOST_STREAMS, stream_name

WORKER = {
    "address": "127.0.0.1:7010",
    "models": '[{"name": "m", "context_tokens": 4096}]',
    "engine": "simulated",
    "slots": "8",
    "limit": "6",
    "running": "3",
    "queued": "2",
    "running_lanes": '{"gold": 2, "bulk": 1}',
    "kv_used": "0.25",
    "reported_ms": "1764442000000",
}


def test_a_worker_is_told_with_what_waits_and_runs_in_each_lane() -> None:
    (row,) = mesh_picture.workers({"adapter-0": WORKER}, {"adapter-0": (4, 0, 0, 0)})
    assert row["lanes"] == {
        "gold": {"running": 2, "waiting": 2},
        "silver": {"running": 0, "waiting": 0},
        "bronze": {"running": 0, "waiting": 0},
        "bulk": {"running": 1, "waiting": 0},  # its report is newer than the lengths
    }
    assert (row["limit"], row["running"], row["queued"], row["kv_used"]) == (6, 3, 2, 0.25)
    assert (row["models"], row["healthy"], row["draining"]) == (["m"], True, False)


def test_an_edge_tells_its_streams_by_names_that_nothing_can_be_resumed_by() -> None:
    reads = [("adapter-0", 2, [("0197-secret", 7), ("0198-secret", 9)]), ("adapter-1", 0, [])]
    fields = mesh_picture.edge_fields("h:1", 3, 2, ["r:1"], reads)
    assert "secret" not in json.dumps(fields)
    (row,) = mesh_picture.edges({"edge-0": fields})
    assert row["routers"] == ["r:1"]
    assert row["reads"]["adapter-0"] == {
        "count": 2,
        "streams": {stream_name("0197-secret"): 7, stream_name("0198-secret"): 9},
    }
    assert row["reads"]["adapter-1"] == {"count": 0, "streams": {}}


def test_ten_thousand_streams_are_counted_and_some_of_them_named() -> None:
    many = [(f"generation-{number}", number) for number in range(10_000)]
    fields = mesh_picture.edge_fields("h:1", 1, 10_000, [], [("a", 6_000, many[:6_000]), ("b", 4_000, many[6_000:])])
    assert len(fields["reads"]) < 20 * MOST_STREAMS
    (row,) = mesh_picture.edges({"edge-0": fields})
    assert (row["reads"]["a"]["count"], row["reads"]["b"]["count"]) == (6_000, 4_000)
    assert len(row["reads"]["a"]["streams"]) == MOST_STREAMS


def test_rows_are_bounded() -> None:
    assert len(mesh_picture.routers({f"router-{number}": {} for number in range(1_000)})) == MOST_ROWS


@given(
    st.dictionaries(st.sampled_from([*WORKER, "connections", "routers", "reads", "generations"]), st.text(max_size=40))
)
def test_a_lease_may_say_anything(fields: dict[str, str]) -> None:
    leases = {"x": fields}
    told = [
        mesh_picture.workers(leases, {"x": (1, 2, 3, 4)}),
        mesh_picture.edges(leases),
        mesh_picture.routers(leases),
        mesh_picture.caches(leases),
    ]
    json.dumps(told, allow_nan=False)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "count", "streams", "name"]), inner)
        ),
        max_leaves=12,
    )
)
def test_nor_need_its_json_have_our_shape(value: object) -> None:
    text = json.dumps(value)
    leases = {"x": {"reads": text, "routers": text, "models": text, "running_lanes": text}}
    json.dumps([mesh_picture.workers(leases, {}), mesh_picture.edges(leases)], allow_nan=False)
