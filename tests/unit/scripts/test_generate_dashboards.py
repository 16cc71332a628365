"""The dashboards in the repository are what their description says, and Grafana can read them."""

from __future__ import annotations

import json

from scripts.generate_dashboards import DASHBOARDS, FOLDER, rendered


def test_the_files_are_up_to_date() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == {dashboard.name for dashboard in DASHBOARDS}
    for dashboard in DASHBOARDS:
        assert (FOLDER / f"{dashboard.name}.json").read_text(encoding="utf-8") == rendered(dashboard)


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    for dashboard in DASHBOARDS:
        panels = json.loads(rendered(dashboard))["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        taken: set[tuple[int, int]] = set()
        for panel in panels:
            at = panel["gridPos"]
            cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
            assert not cells & taken, panel["title"]
            assert at["x"] + at["w"] <= 24
            taken |= cells
            assert panel["type"] == "row" or panel["targets"][0]["expr"]
