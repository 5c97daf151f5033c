"""docs/operate/alerts.md: every alert has its runbook, and what rules, dashboard and runbooks name exists."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.monitoring import __main__ as command
from tests.monitoring.cases import CASES
from tests.monitoring.dashboard import COLUMNS, FILE, make_dashboard
from tests.monitoring.rules import RAW, alerts, raw_rules
from tests.reference.commands import leaves

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "operate" / "alerts.md"
METRIC = re.compile(r"\b(?:llmendpoint_(?:operator|gateway|batch)_\w+|(?:vllm|llmendpoint):\w+)")
RECORD = re.compile(r"\bnamespace_llmendpoint\w*:\w+:\w+")


def sections() -> dict[str, str]:
    """Heading -> text of the page's sections of alerts."""
    parts = re.split(r"^### (LLM\w+)$", PAGE.read_text(), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def documented() -> set[str]:
    """All that Prometheus has: the names of the metrics' page, and the series of their histograms."""
    page = (DOCS / "reference" / "metrics.md").read_text()
    found = re.findall(r"^\| `([\w:]+)` \| (\w+) \|", page, re.M)
    histograms = {
        name + end for name, kind in found if kind == "histogram" for end in ("_bucket", "_sum", "_count")
    }
    return {name for name, _ in found} | histograms


def recorded() -> set[str]:
    return {rule["record"] for rule in raw_rules() if "record" in rule}


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert list(sections()) == list(alerts(raw_rules()))


@pytest.mark.parametrize("alert", sorted(alerts(raw_rules())))
def test_a_runbook_says_what_it_means_how_to_look_and_what_to_do(alert: str) -> None:
    text = sections()[alert]
    assert re.findall(r"^\*\*(.+?)\*\*", text, re.M) == ["What it means.", "Look.", "Do."]


def test_every_alert_says_what_is_wrong_and_how_bad() -> None:
    for name, rule in alerts(raw_rules()).items():
        assert rule["annotations"].keys() == {"summary", "description"}, name
        assert rule["labels"]["severity"] in {"critical", "warning"}, name


def test_the_texts_of_an_alert_use_labels_that_it_has() -> None:
    for name, rule in alerts(raw_rules()).items():
        used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        for case in (case for case in CASES if case.alert == name):
            for fired in case.fires:
                assert used <= set(re.findall(r'(\w+)="', fired)), case.name


def test_every_alert_is_tried_when_it_fires_and_when_it_does_not() -> None:
    for name in alerts(raw_rules()):
        mine = [case for case in CASES if case.alert == name]
        assert any(case.fires for case in mine), name
        assert any(not case.fires for case in mine), name
    assert {case.alert for case in CASES} == alerts(raw_rules()).keys()


@pytest.mark.parametrize(
    "file", [RAW, FILE, PAGE, DOCS / "operate" / "checklist.md"], ids=lambda path: path.name
)
def test_every_metric_that_is_named_exists(file: Path) -> None:
    text = "\n".join(line for line in file.read_text().splitlines() if not line.lstrip().startswith("#"))
    records = set(RECORD.findall(text))
    assert records <= recorded()
    named = set(METRIC.findall(RECORD.sub("", text)))
    assert named
    assert named <= documented()


def test_every_metric_that_a_case_plays_exists() -> None:
    names = {name.partition("{")[0] for case in CASES for name in case.series} - {"up"}
    assert names <= documented()


def test_every_command_of_a_runbook_exists() -> None:
    known = {words for words, _ in leaves()}
    for line in re.findall(r"kubectl llm [^`\n]*", PAGE.read_text()):
        words = line.split()
        said = {" ".join(words[:count]) for count in (3, 4)}
        assert said & known, line


def test_the_dashboard_is_the_one_that_is_described() -> None:
    assert command.main(["--check"]) == 0
    assert json.loads(FILE.read_text()) == make_dashboard()


def test_no_panel_lies_over_another_and_every_id_is_single() -> None:
    taken: set[tuple[int, int]] = set()
    panels = make_dashboard()["panels"]
    for panel in panels:
        x, y, w, h = (panel["gridPos"][key] for key in "xywh")
        cells = {(column, line) for column in range(x, x + w) for line in range(y, y + h)}
        assert x + w <= COLUMNS
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in panels]
    assert len(set(ids)) == len(ids)
