"""Grafana's JSON of the dashboard that panels.py describes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.monitoring.panels import ROWS, Panel

FILE = Path(__file__).parents[2] / "charts" / "llmendpoint" / "monitoring" / "dashboard.json"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS, HEIGHT = 24, 8
SCHEMA = 39
"""Of Grafana 11; later ones read it."""
Json = dict[str, Any]


def make_dashboard() -> Json:
    return {
        "uid": "llmendpoint",
        "title": "LLM endpoints",
        "tags": ["llmendpoint"],
        "schemaVersion": SCHEMA,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_source(), *_variables()]},
        "panels": list(_panels()),
    }


def as_text() -> str:
    return json.dumps(make_dashboard(), indent=1, ensure_ascii=False) + "\n"


def _source() -> Json:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _variables() -> Iterator[Json]:
    """Chosen from what the operator shows, so that an endpoint without requests is there, too."""
    for name, where in (("namespace", ""), ("llmendpoint", '{namespace=~"$namespace"}')):
        yield {
            "name": name,
            "type": "query",
            "datasource": SOURCE,
            "query": f"label_values(llmendpoint_operator_condition{where}, {name})",
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }


def _panels() -> Iterator[Json]:
    number = y = 0
    for row in ROWS:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": _place(0, y, COLUMNS, 1),
        }
        x, y = 0, y + 1
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y = 0, y + HEIGHT
            number += 1
            yield _panel(panel, number, _place(x, y, panel.width, HEIGHT))
            x += panel.width
        y += HEIGHT


def _place(x: int, y: int, width: int, height: int) -> Json:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel, number: int, place: Json) -> Json:
    defaults: Json = {"unit": panel.unit, "min": 0, "custom": {"lineWidth": 1, "fillOpacity": 5}}
    if panel.most is not None:
        defaults["max"] = panel.most
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + i),
                "datasource": SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
            }
            for i, query in enumerate(panel.queries)
        ],
    }
