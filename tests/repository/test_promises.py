"""CONTRIBUTING.md: the first line of a test file names the page that it holds, and the promise that it tests."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.repository.names import ROOT

FIRST_LINE = re.compile(r'(?P<page>[\w./-]+)(?:, "(?P<heading>[^"]+)")?: (?P<promise>\S.*\.)')
TOP = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
"""Pages outside docs/ that promise something."""
LEAST_WORDS = 5


def files_with_tests() -> list[Path]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = settings["tool"]["pytest"]["ini_options"]["testpaths"]
    return sorted({path for folder in folders for path in (ROOT / folder).rglob("test_*.py")})


def first_line(path: Path) -> str:
    lines = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()
    return lines[0] if lines else ""


def headings(page: Path) -> list[str]:
    return re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE) if page.is_file() else []


def fault(line: str) -> str | None:
    """What is wrong with the first line of a test file, or None."""
    found = FIRST_LINE.fullmatch(line)
    if found is None:
        return "write: PAGE: what the page promises and this file tests, as one sentence."
    page, heading = found["page"], found["heading"]
    if page not in TOP and not (page.startswith("docs/") and (ROOT / page).exists()):
        return f"{page} is no page or folder of docs/, and none of {', '.join(TOP)}"
    if heading and heading not in headings(ROOT / page):
        return f"{page} has no heading {heading}"
    if len(found["promise"].split()) < LEAST_WORDS:
        return f"say what {page} promises in a sentence"
    return None


def test_each_file_of_tests_says_which_promise_of_which_page_it_holds() -> None:
    faults = {str(path.relative_to(ROOT)): fault(first_line(path)) for path in files_with_tests()}
    assert len(faults) > 200, "the folders are not found"
    assert {path: said for path, said in faults.items() if said} == {}


def test_no_two_files_say_the_same() -> None:
    lines = [first_line(path) for path in files_with_tests()]
    assert sorted(line for line in lines if lines.count(line) > 1) == []


def test_a_heading_is_looked_for_in_its_page() -> None:
    assert fault('SECURITY.md, "What is promised": a way around a sentence of it is a fault.') is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "write: PAGE"),
        ("Rollouts on a real API server.", "write: PAGE"),
        ("docs/concepts/rollouts.md: a breach goes back by itself", "write: PAGE"),
        ("docs/no-such-page.md: a breach goes back by itself.", "is no page or folder"),
        ("CHANGELOG.md: a breach goes back by itself.", "is no page or folder"),
        ("docs/concepts/rollouts.md: it works.", "say what"),
        ('SECURITY.md, "No such heading": a breach goes back by itself.', "has no heading"),
        ('docs/concepts, "Rollouts": a breach goes back by itself.', "has no heading"),
    ],
)
def test_what_names_no_promise_is_found(line: str, said: str) -> None:
    assert said in (fault(line) or "")
