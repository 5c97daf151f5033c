"""docs/decisions: each page has its five parts, is short, and names only tests, classes, commands and pages that exist."""

import re
from pathlib import Path

import pytest

from tests.repository.names import ROOT, broken_links, classes, code_in, unknown_targets, written_tests

FOLDER = ROOT / "docs" / "decisions"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")
PARTS = [
    "The question",
    "What was decided",
    "What else was weighed",
    "What it costs",
    "What would change our mind",
]
MOST_LINES = 60


def unknown_names(page: str) -> set[str]:
    """Tests and classes that a page names as code, and that are not there."""
    named = set(re.findall(r"`(test_\w+|[A-Z][a-z]\w+)`", page))
    return named - written_tests() - classes() - KINDS


KINDS = frozenset({"LLMEndpoint", "LLMRuntime"})


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_decision_has_its_parts_and_is_short(path: Path) -> None:
    page = path.read_text()
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == PARTS
    assert page.startswith("# Why ")
    assert len(page.splitlines()) <= MOST_LINES


@pytest.mark.parametrize("path", [*PAGES, FOLDER / "README.md"], ids=lambda path: path.stem)
def test_what_a_decision_names_is_there(path: Path) -> None:
    page = path.read_text()
    assert unknown_names(page) == set()
    assert unknown_targets(page) == set()
    assert broken_links(path) == []
    files = re.findall(r"`(test_\w+\.py)`", page)
    assert [name for name in files if not list(ROOT.glob(f"*/**/{name}"))] == []


def test_a_decision_says_which_tests_hold_it() -> None:
    assert [path.name for path in PAGES if not re.search(r"`test_\w+`", code_in(path.read_text()))] == []


def test_the_index_has_every_page_under_its_title() -> None:
    listed = dict(re.findall(r"^\| \[(.*?)\]\((.*?)\)", (FOLDER / "README.md").read_text(), re.MULTILINE))
    assert listed == {path.read_text().splitlines()[0].removeprefix("# "): path.name for path in PAGES}
    assert len(listed) == 10


def test_what_is_not_there_is_found() -> None:
    assert unknown_names("`test_nobody_wrote`, `NoSuchClass`, `KubeApi`") == {
        "test_nobody_wrote",
        "NoSuchClass",
    }
