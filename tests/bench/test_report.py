"""docs/benchmarks.md: each table names its command, its day and its machine, and only what was measured anew changes."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.bench import report
from tests.bench.results import Result


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr("tests.bench.results.RESULTS", tmp_path)
    return tmp_path


def test_what_did_not_run_here_stays_as_it_is(results: Path) -> None:
    before = report.PAGE.read_text()
    assert report.page(before) == before


def test_what_ran_is_shown_with_its_day_and_machine_and_the_rest_stays(results: Path) -> None:
    before = report.PAGE.read_text()
    (results / "wake.json").write_text(json.dumps([asdict(Result("a held request", 12.0, "ms"))]))
    old, new = report.sections_of(before), report.sections_of(report.page(before))
    assert "| a held request | 12 ms " in new["From zero: the pod"]
    assert report.machine() in new["From zero: the pod"]
    assert {title for title in new if new[title] != old.get(title)} == {"From zero: the pod"}


def test_every_section_of_the_page_has_a_command_and_a_machine() -> None:
    found = report.sections_of(report.PAGE.read_text())
    titles = [section.title for section in report.SECTIONS]
    assert [title for title in found if title not in titles] == ["Notes"]
    for section in report.SECTIONS:
        if section.title in found:
            assert found[section.title].startswith(f"`{section.command}`, 20"), section.title
