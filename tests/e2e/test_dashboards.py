"""What dashboards and alerts ask for exists, and nothing that clients send becomes a label."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from scripts.generate_dashboards import expressions
from tests.support.clients import frames
from tests.support.mesh import MeshProcesses

ROOT = Path(__file__).resolve().parents[2]
_NAME = re.compile(r"\b(?:streamway|process)_[a-z_]+")
PROCESSES = ("edge-0", "edge-1", "router-0", "adapter-0", "adapter-1", "cache-0")


async def families(mesh: MeshProcesses) -> set[str]:
    """Every sample name that some process can show."""
    found: set[str] = set()
    for process in PROCESSES:
        for line in (await mesh.metrics(process)).splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                found |= {name, *(f"{name}{end}" for end in ("_bucket", "_count", "_sum") if kind == "histogram")}
    return found


def alerts() -> list[str]:
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))
    return [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


async def test_k4_every_metric_of_the_dashboards_and_alerts_exists(mesh: MeshProcesses) -> None:
    asked = {name for expression in [*expressions(), *alerts()] for name in _NAME.findall(expression)}
    missing = asked - await families(mesh)
    # That level is there only with an encoder.
    semantic = (ROOT / "services" / "cache" / "metrics.py").read_text(encoding="utf-8")
    assert {name for name in missing if f'"{name.removesuffix("_total")}"' not in semantic} == set()
    assert all(name.startswith("streamway_cache_semantic_") for name in missing)


async def test_k4_no_label_grows_with_what_clients_send(mesh: MeshProcesses) -> None:
    async def send(start: int) -> None:
        async with frames(mesh.websocket_url) as client:
            for number in range(start, start + 30):
                made_up = f"made-up-{number}"
                fields = {"session": made_up, "idempotency_key": made_up}
                await client.open(str(number), made_up, params={"max_tokens": 1}, **fields)
                await client.until("finished", str(number))
                await client.open(f"m{number}", made_up, model=made_up)
                await client.until("error", f"m{number}")

    async def series() -> set[str]:
        shown = [await mesh.metrics(process) for process in PROCESSES]
        lines = "\n".join(shown).splitlines()
        return {line.rsplit(" ", 1)[0] for line in lines if line and not line.startswith("#")}

    await send(0)
    before = await series()
    await send(100)
    after = await series()
    assert not [line for line in after if "made-up" in line]
    # A bounded number of words may still appear for the first time; nothing grows with 60 requests.
    assert len(after - before) < 20, sorted(after - before)
