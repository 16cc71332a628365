"""Generates the Grafana dashboards in deploy/grafana/dashboards from the description below.

python scripts/generate_dashboards.py [--check]      --check writes nothing and fails when a file is not what this says

Each panel is a title, a unit and queries, with what it tells beside it. A test holds every metric named here, and in
deploy/prometheus/alerts.yml, against those that the services have.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "deploy" / "grafana" / "dashboards"
_SOURCE: Final = {"type": "prometheus", "uid": "prometheus"}
_WIDTH: Final = 24
_HEIGHT: Final = 8
_RANGE: Final = "$__rate_interval"


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL and what its lines are called."""

    expression: str
    legend: str
    exemplars: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture. `unit` is Grafana's: "s", "bytes", "reqps", "percentunit", "short"."""

    title: str
    tells: str
    unit: str
    queries: tuple[Query, ...]
    columns: int = 8
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Dashboard:
    """Rows of panels under headings."""

    name: str
    title: str
    tells: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]


def rate(metric: str, by: str = "") -> str:
    """Per second, of all processes together."""
    grouped = f"sum by ({by})" if by else "sum"
    return f"{grouped} (rate({metric}[{_RANGE}]))"


def quantile(share: float, metric: str, by: str = "") -> str:
    """Of a histogram, all processes together."""
    grouped = ", ".join(["le", *([by] if by else [])])
    return f"histogram_quantile({share}, sum by ({grouped}) (rate({metric}_bucket[{_RANGE}])))"


def quantiles(metric: str, *, exemplars: bool = False) -> tuple[Query, ...]:
    """The three that are looked at; the median's query carries the exemplars."""
    return tuple(
        Query(quantile(share, metric), f"p{share * 100:g}", exemplars=exemplars and share == 0.5)
        for share in (0.5, 0.95, 0.99)
    )


MESH: Final = Dashboard(
    "mesh",
    "Streamway: the mesh",
    "What clients get, where it waits, and what gives way.",
    (
        (
            "What clients get",
            (
                Panel(
                    "Time to first token",
                    "From the request at the edge to its first token. Points are traces that were recorded.",
                    "s",
                    quantiles("streamway_edge_ttft_seconds", exemplars=True),
                ),
                Panel(
                    "Tokens a second",
                    "Token units passed to clients, by surface.",
                    "short",
                    (Query(rate("streamway_edge_tokens_total", "surface"), "{{surface}}"),),
                    stacked=True,
                ),
                Panel(
                    "Ends a second",
                    "Generations by how they ended: what is no `finished`, `cancelled` or `left` is an error's reason.",
                    "short",
                    (Query(rate("streamway_edge_generations_total", "outcome"), "{{outcome}}"),),
                    stacked=True,
                ),
                Panel(
                    "Generations in flight, by age",
                    "What stays among the old ones hangs, or is very long.",
                    "short",
                    (Query('sum by (age) (streamway_inflight_generations{job="edge"})', "{{age}}"),),
                    stacked=True,
                ),
                Panel(
                    "Connections",
                    "Open connections and requests, by surface.",
                    "short",
                    (Query("sum by (surface) (streamway_edge_connections)", "{{surface}}"),),
                ),
                Panel(
                    "Resumes a second",
                    "Clients that came back, and whether everything was still there.",
                    "short",
                    (Query(rate("streamway_edge_resumes_total", "outcome"), "{{outcome}}"),),
                ),
            ),
        ),
        (
            "Router",
            (
                Panel(
                    "Decisions",
                    "Workers chosen, by where they stand to the session's home.",
                    "short",
                    (Query(rate("streamway_router_decisions_total", "branch"), "{{branch}}"),),
                    stacked=True,
                ),
                Panel(
                    "Admissions",
                    "Taken, or the reason of the refusal.",
                    "short",
                    (Query(rate("streamway_router_admissions_total", "outcome"), "{{outcome}}"),),
                    stacked=True,
                ),
                Panel(
                    "Dispatch",
                    "Until a task is in its lane.",
                    "s",
                    quantiles("streamway_router_dispatch_seconds"),
                ),
                Panel(
                    "Workers",
                    "Known workers by state, and how many there should be.",
                    "short",
                    (
                        Query("max by (state) (streamway_router_workers)", "{{state}}"),
                        Query("max (streamway_router_workers_wanted)", "wanted"),
                        Query("max (streamway_router_workers_kv_full)", "KV full"),
                    ),
                ),
                Panel(
                    "Breakers that are not closed",
                    "1 open, 2 half open.",
                    "short",
                    (
                        Query(
                            "max by (worker, model, tier) (streamway_router_breakers > 0)",
                            "{{worker}} {{model}} {{tier}}",
                        ),
                    ),
                ),
                Panel(
                    "Tasks moved",
                    "Work of workers that are gone, by what became of it.",
                    "short",
                    (Query(rate("streamway_router_tasks_moved_total", "outcome"), "{{outcome}}"),),
                ),
            ),
        ),
        (
            "Processes",
            (
                Panel(
                    "Event-loop lag, p99",
                    "How late timers run: what is above 50 ms delays everybody on that process.",
                    "s",
                    (Query(quantile(0.99, "streamway_loop_lag_seconds", "job"), "{{job}}"),),
                ),
                Panel(
                    "Memory",
                    "Resident memory of each edge process.",
                    "bytes",
                    (Query("process_resident_memory_bytes", "{{job}} {{instance}}"),),
                ),
                Panel(
                    "CPU",
                    "Cores used by each edge process.",
                    "short",
                    (Query(f"rate(process_cpu_seconds_total[{_RANGE}])", "{{job}} {{instance}}"),),
                ),
            ),
        ),
    ),
)
WORKERS: Final = Dashboard(
    "workers",
    "Streamway: workers and engines",
    "How long engines take, what waits for them, and what is done again.",
    (
        (
            "Engine calls",
            (
                Panel(
                    "Duration of engine calls, p95 by prompt type",
                    "From the call to its end.",
                    "s",
                    (
                        Query(
                            quantile(0.95, "streamway_llm_inference_duration_seconds", "prompt_type"),
                            "{{prompt_type}}",
                            exemplars=True,
                        ),
                    ),
                ),
                Panel(
                    "Engine calls by prompt type",
                    "Calls that ended, a second.",
                    "short",
                    (Query(rate("streamway_llm_inference_duration_seconds_count", "prompt_type"), "{{prompt_type}}"),),
                    stacked=True,
                ),
                Panel(
                    "Tokens a second",
                    "Token units made, by worker.",
                    "short",
                    (Query(rate("streamway_tokens_total", "instance"), "{{instance}}"),),
                    stacked=True,
                ),
                Panel(
                    "Errors of engines",
                    "By reason.",
                    "short",
                    (Query(rate("streamway_engine_errors_total", "reason"), "{{reason}}"),),
                    stacked=True,
                ),
                Panel(
                    "KV cache in use",
                    "Share, by worker.",
                    "percentunit",
                    (Query("streamway_kv_used_ratio", "{{instance}}"),),
                ),
                Panel(
                    "Running and allowed",
                    "Generations the engine works on, and the limit that moves with its first tokens.",
                    "short",
                    (
                        Query("streamway_running", "{{instance}} running"),
                        Query("streamway_concurrency_limit", "{{instance}} limit"),
                    ),
                ),
            ),
        ),
        (
            "Waiting",
            (
                Panel(
                    "Wait for a slot",
                    "From acceptance to the engine call.",
                    "s",
                    quantiles("streamway_queue_wait_seconds"),
                ),
                Panel(
                    "First token at the worker",
                    "From acceptance.",
                    "s",
                    quantiles("streamway_first_token_seconds", exemplars=True),
                ),
                Panel("Queued", "Tasks that wait, by worker.", "short", (Query("streamway_queued", "{{instance}}"),)),
            ),
        ),
        (
            "What is done again, or given away",
            (
                Panel(
                    "Takeovers",
                    "Answers that another worker had begun, by how this one went on.",
                    "short",
                    (Query(rate("streamway_takeovers_total", "how"), "{{how}}"),),
                ),
                Panel(
                    "Retries",
                    "Engine calls that failed before a token, by what became of them.",
                    "short",
                    (Query(rate("streamway_retries_total", "outcome"), "{{outcome}}"),),
                ),
                Panel(
                    "Ended before their time",
                    "By stage and reason.",
                    "short",
                    (Query(rate("streamway_cancels_total", "stage, reason"), "{{stage}} {{reason}}"),),
                    stacked=True,
                ),
            ),
        ),
    ),
)
CACHE: Final = Dashboard(
    "cache",
    "Streamway: the cache",
    "What it answers, what it costs, what it saves.",
    (
        (
            "Answers",
            (
                Panel(
                    "Lookups",
                    "By outcome, at the caches.",
                    "short",
                    (Query(rate("streamway_cache_lookups_total", "outcome"), "{{outcome}}"),),
                    stacked=True,
                ),
                Panel(
                    "Share of hits",
                    "Of the lookups that could have been one.",
                    "percentunit",
                    (
                        Query(
                            f'sum (rate(streamway_cache_lookups_total{{outcome=~"hit_.*"}}[{_RANGE}])) / '
                            f'sum (rate(streamway_cache_lookups_total{{outcome!="bypass"}}[{_RANGE}]))',
                            "hits",
                        ),
                    ),
                ),
                Panel(
                    "As routers see it",
                    "`late` and `unavailable` are misses that a slow or absent cache made.",
                    "short",
                    (Query(rate("streamway_router_cache_lookups_total", "outcome"), "{{outcome}}"),),
                    stacked=True,
                ),
                Panel(
                    "Batch time",
                    "To work through one batch of lookups.",
                    "s",
                    quantiles("streamway_cache_batch_seconds"),
                ),
                Panel(
                    "Bytes",
                    "Of entries, and the bound.",
                    "bytes",
                    (
                        Query("streamway_cache_bytes", "{{instance}}"),
                        Query("streamway_cache_limit_bytes", "{{instance}} bound"),
                    ),
                ),
                Panel(
                    "Evictions and refused inserts",
                    "A second.",
                    "short",
                    (
                        Query(rate("streamway_cache_evictions_total"), "evicted"),
                        Query(rate("streamway_cache_inserts_refused_total"), "refused"),
                    ),
                ),
            ),
        ),
        (
            "Ledger",
            (
                Panel(
                    "Tokens saved and spent",
                    "By posting, a second.",
                    "short",
                    (Query(rate("streamway_cache_ledger_tokens_total", "posting"), "{{posting}}"),),
                ),
                Panel(
                    "Seconds saved and spent",
                    "By posting, a second.",
                    "short",
                    (Query(rate("streamway_cache_ledger_seconds_total", "posting"), "{{posting}}"),),
                ),
                Panel(
                    "Semantic level",
                    "Questions by what was decided.",
                    "short",
                    (Query(rate("streamway_cache_semantic_questions_total", "outcome"), "{{outcome}}"),),
                ),
            ),
        ),
    ),
)
DASHBOARDS: Final = (MESH, WORKERS, CACHE)


def expressions(dashboards: Sequence[Dashboard] = DASHBOARDS) -> list[str]:
    """Every query there is."""
    return [
        query.expression
        for dashboard in dashboards
        for _, panels in dashboard.rows
        for panel in panels
        for query in panel.queries
    ]


def rendered(dashboard: Dashboard) -> str:
    """As Grafana reads it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for heading, row in dashboard.rows:
        panels.append(
            {"type": "row", "title": heading, "collapsed": False, "panels": [], "gridPos": _at(0, top, _WIDTH, 1)}
        )
        top, left = top + 1, 0
        for panel in row:
            if left + panel.columns > _WIDTH:
                top, left = top + _HEIGHT, 0
            panels.append(_panel(panel, _at(left, top, panel.columns, _HEIGHT)))
            left += panel.columns
        top += _HEIGHT
    for number, shown in enumerate(panels, 1):
        shown["id"] = number
    content = {
        "uid": f"streamway-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.tells,
        "tags": ["streamway"],
        "timezone": "browser",
        "editable": False,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "schemaVersion": 39,
        "panels": panels,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _panel(panel: Panel, at: dict[str, int]) -> dict[str, Any]:
    custom = {
        "drawStyle": "line",
        "fillOpacity": 20 if panel.stacked else 0,
        "showPoints": "never",
        "stacking": {"mode": "normal" if panel.stacked else "none"},
    }
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.tells,
        "datasource": _SOURCE,
        "gridPos": at,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": custom}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": _SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend,
                "exemplar": query.exemplars,
            }
            for number, query in enumerate(panel.queries)
        ],
    }


def _at(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def main() -> int:
    """Writes, or compares."""
    check = "--check" in sys.argv[1:]
    stale = []
    FOLDER.mkdir(parents=True, exist_ok=True)
    for dashboard in DASHBOARDS:
        path, text = FOLDER / f"{dashboard.name}.json", rendered(dashboard)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.relative_to(ROOT))
            if not check:
                path.write_text(text, encoding="utf-8")
    for path in stale:
        print(f"{path} is {'not up to date: make docs' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
