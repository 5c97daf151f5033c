"""docs/contribute/where-to-change.md: every place and test that the page names is there, and no folder of the code is missing."""

import re
from pathlib import Path

from tests.repository.names import ROOT, broken_links

PAGE = ROOT / "docs" / "contribute" / "where-to-change.md"
CODE = {
    part: ROOT / part / "src" / f"llmendpoint_{part}"
    for part in ("operator", "gateway", "server", "cli", "batch")
}
PLACES = {
    **CODE,
    "fit": ROOT / "fit/src/llmendpoint_fit",
    "verdicts": ROOT / "verdicts/src/llmendpoint_verdicts",
    "chart": ROOT / "charts/llmendpoint",
}
TESTS = {
    "operator": ROOT / "operator/tests/operator_unit",
    "gateway": ROOT / "gateway/tests",
    "server": ROOT / "server/tests",
    "cli": ROOT / "cli/tests/cli_unit",
    "batch": ROOT / "batch/tests",
    "fit": ROOT / "fit/tests/fit_unit",
    "verdicts": ROOT / "verdicts/tests/verdicts_unit",
    "chart": ROOT / "tests/integration",
}
ABOVE = {("operator", "core"), ("operator", "observe"), ("gateway", "serve")}
"""They hold the folders of the subjects, and what every subject uses."""


def code_in(cell: str) -> list[str]:
    """What stands as code in a cell; not what is a command."""
    return [code for code in re.findall(r"`([^`]+)`", cell) if not code.startswith("make ")]


def rows(columns: int) -> list[list[str]]:
    """Of the table with so many columns, without its head."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if len(row) == columns and "part" not in row]


def subjects(code: Path) -> set[str]:
    """Folders with modules, as they are called below the package."""
    folders = {path.parent for path in code.rglob("*.py") if path.name != "__init__.py"} - {code}
    return {folder.relative_to(code).as_posix() for folder in folders}


def test_each_change_leads_to_a_place_and_a_test_that_are_there() -> None:
    changes = rows(4)
    assert len(changes) >= 30
    named = [
        (PLACES[part], place, change) for change, part, places, _ in changes for place in code_in(places)
    ]
    named += [(TESTS[part], test, change) for change, part, _, tests in changes for test in code_in(tests)]
    named += [
        (ROOT, path, change)
        for change, *cells in rows(3)
        if change not in CODE
        for cell in cells
        for path in code_in(cell)
    ]
    assert [
        change for below, path, change in named if not (below / path).exists() and not (ROOT / path).exists()
    ] == []
    assert broken_links(PAGE) == []


def test_every_folder_of_the_code_is_told_of() -> None:
    told = {
        (part, folder.strip("`")) for part, folder, _ in rows(3) if part in CODE and "/src/" not in folder
    }
    found = {(part, folder) for part, code in CODE.items() for folder in subjects(code)}
    assert found - told == ABOVE, "folders that the page does not know"
    assert told - found == set(), "folders that are not there"
