"""The mesh as its leases describe it, as plain values for the console. Leases are read as they are: one that makes no sense
gives zeros, not an error."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

from streamway.valkey.keys import CLASSES

# Of each kind of process; a picture with more says nothing to anybody.
MOST_ROWS: Final = 100
# Streams that an edge names; what is beyond is counted.
MOST_STREAMS: Final = 200
_MOST: Final = 1e15

Leases = Mapping[str, Mapping[str, str]]
Row = dict[str, Any]


def stream_name(generation: str) -> str:
    """What a stream is called in pictures: enough to follow it, nothing that it could be resumed by."""
    return blake2b(generation.encode(), digest_size=4).hexdigest()


def edge_fields(
    address: str,
    connections: int,
    generations: int,
    routers: Sequence[str],
    workers: Iterable[tuple[str, int, Sequence[tuple[str, int]]]],
) -> dict[str, str]:
    """The lease of an edge. `workers`: each that is read from, how many streams, and some of them: generation, position."""
    read: dict[str, Row] = {}
    room = MOST_STREAMS
    for worker, count, streams in workers:
        named = {stream_name(generation): position for generation, position in streams[:room]}
        room -= len(named)
        row = read.setdefault(worker, {"count": 0, "streams": {}})
        row["count"] += count
        row["streams"] |= named
    return {
        "address": address,
        "connections": str(connections),
        "generations": str(generations),
        "routers": json.dumps(list(routers)),
        "reads": json.dumps(read),
    }


def edges(leases: Leases) -> list[Row]:
    """Edges: who they are linked to, and what they read where."""
    return [
        {
            "id": id_,
            "address": fields.get("address", ""),
            "connections": _number(fields.get("connections")),
            "generations": _number(fields.get("generations")),
            "routers": [str(address) for address in _list(fields.get("routers"))][:MOST_ROWS],
            "reads": _reads(fields.get("reads")),
        }
        for id_, fields in _some(leases)
    ]


def _reads(said: str | None) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for worker, row in list(_dict(said).items())[:MOST_ROWS]:
        streams = row.get("streams") if isinstance(row, dict) else None
        if isinstance(streams, dict):
            named = list(streams.items())[:MOST_STREAMS]
            found[worker] = {
                "count": _number(row.get("count")),
                "streams": {str(stream): _number(position) for stream, position in named},
            }
    return found


def routers(leases: Leases) -> list[Row]:
    """Routers."""
    return [
        {
            "id": id_,
            "address": fields.get("address", ""),
            "generations": _number(fields.get("generations")),
            "draining": fields.get("draining") == "1",
            "store_away": fields.get("store_away") == "1",
        }
        for id_, fields in _some(leases)
    ]


def caches(leases: Leases) -> list[Row]:
    """Caches."""
    return [{"id": id_, "address": fields.get("address", "")} for id_, fields in _some(leases)]


def workers(leases: Leases, lanes: Mapping[str, Sequence[int]]) -> list[Row]:
    """Workers. `lanes`: entries of each one's lanes, in the order of CLASSES; what runs is among them."""
    return [_worker(id_, fields, lanes.get(id_, ())) for id_, fields in _some(leases)]


def _worker(id_: str, fields: Mapping[str, str], lanes: Sequence[int]) -> Row:
    running = _dict(fields.get("running_lanes"))
    models = [str(model.get("name", "")) for model in _list(fields.get("models")) if isinstance(model, dict)]
    rows = {}
    for class_, tasks in zip(CLASSES, [*lanes, 0, 0, 0, 0], strict=False):
        runs = _number(running.get(class_))
        # The report and the lengths are of two moments.
        rows[class_] = {"running": runs, "waiting": max(0, tasks - runs)}
    return {
        "id": id_,
        "address": fields.get("address", ""),
        "models": models[:MOST_ROWS],
        "engine": fields.get("engine", ""),
        "slots": _number(fields.get("slots")),
        "limit": _number(fields.get("limit")) or _number(fields.get("slots")),
        "running": _number(fields.get("running")),
        "queued": _number(fields.get("queued")),
        "lanes": rows,
        "kv_used": _share(fields.get("kv_used")),
        "kv_full": fields.get("kv_full") == "1",
        "memory_pressed": fields.get("memory_pressed") == "1",
        "draining": fields.get("draining") == "1",
        "healthy": fields.get("healthy", "1") == "1",
        "began_ms": _number(fields.get("began_ms")),
        "reported_ms": _number(fields.get("reported_ms")),
    }


def _some(leases: Leases) -> list[tuple[str, Mapping[str, str]]]:
    return sorted(leases.items())[:MOST_ROWS]


def _number(said: object) -> int:
    """A whole number from 0; 0 for what is none."""
    try:
        number = float(said)  # type: ignore[arg-type]  # whatever it is: what is no number raises
    except (TypeError, ValueError, OverflowError):
        return 0
    return 0 if math.isnan(number) else int(min(_MOST, max(0.0, number)))


def _share(said: str | None) -> float | None:
    """0 … 1; None where the engine does not tell."""
    try:
        share = float(said or "")
    except ValueError:
        return None
    return None if math.isnan(share) else min(1.0, max(0.0, share))


def _json(said: str | None) -> object:
    try:
        return json.loads(said or "null")
    except (ValueError, RecursionError):
        return None


def _list(said: str | None) -> list[Any]:
    found = _json(said)
    return found if isinstance(found, list) else []


def _dict(said: str | None) -> dict[str, Any]:
    found = _json(said)
    return found if isinstance(found, dict) else {}
