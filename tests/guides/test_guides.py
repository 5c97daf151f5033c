"""docs/guides: every guide has one form, and its commands are read as tests/e2e/test_guides.py runs them."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.guides import page, script, table
from tests.guides.page import Commands, File, PageError, parse

FORM = ("What you need", "Steps", "How to check", "What can go wrong", "Remove it again")
FENCE = "```"


def block(language: str, content: str) -> str:
    return f"{FENCE}{language}\n{content}{FENCE}\n"


@pytest.mark.parametrize("name", page.pages())
def test_a_guide_has_the_form_of_all_guides(name: str) -> None:
    found = page.read(name)
    assert tuple(heading for heading in found.headings if heading in FORM) == FORM
    assert found.commands, "a guide without commands"
    wrong = found.text.partition("## What can go wrong")[2].partition("\n## ")[0]
    assert len(re.findall(r"^\|", wrong, re.M)) >= 4, "no table of what can go wrong"
    assert len(found.text.splitlines()) <= 140, "a longer page is two tasks"


@pytest.mark.parametrize("name", page.pages())
def test_the_manifests_of_a_guide_are_yaml_and_the_tables_rows_are_needed(name: str) -> None:
    values = {"namespace": "n", "port": "1"}
    for step in table.applied(page.read(name), values).steps:
        if isinstance(step, File) and step.name.endswith(".yaml"):
            assert list(yaml.safe_load_all(step.content))


def test_rows_of_the_table_are_of_guides_that_there_are() -> None:
    assert {row.page for row in table.TABLE} <= set(page.pages())
    assert all(row.why for row in table.TABLE)


def test_a_page_is_files_and_commands_with_their_output() -> None:
    text = (
        "# Title\n"
        + block("yaml", "# file: a.yaml\na: 1\n")
        + block("sh", "cat a.yaml\n")
        + "\n"
        + block("text", "a: …\n")
    )
    assert parse("p", text).steps == (
        File("a.yaml", "# file: a.yaml\na: 1\n"),
        Commands("cat a.yaml\n", "a: …\n"),
    )


@pytest.mark.parametrize(
    "text",
    [
        block("", "kubectl get pods\n"),
        block("yaml", "a: 1\n"),
        block("text", "nobody printed this\n"),
        block("sh", "true\n") + "then\n" + block("text", "after a sentence\n"),
    ],
)
def test_a_block_that_nothing_checks_is_refused(text: str) -> None:
    with pytest.raises(PageError):
        parse("p", text)


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("pod a  Ready  5m", "pod a Ready 12s\n", True),
        ("revision 0c1d2e3f4a active", "revision 7d9f8c6b54  active", True),
        ("first\n…\nlast", "first\nsecond\nthird\nlast", True),
        ("first\n…\nlast", "first\nlast", True),
        ("HTTP/1.1 … Unavailable", "HTTP/1.1 503 Service Unavailable", True),
        ("2 of 2", "1 of 2", False),
        ("first", "first\nsecond", False),
        ("a.b", "axb", False),
    ],
)
def test_output_is_compared_but_for_times_hashes_and_what_the_page_leaves_out(
    expected: str, printed: str, same: bool
) -> None:
    assert script.matches(expected, printed) is same


def test_the_script_stops_at_the_first_failure_and_keeps_each_output_by_itself() -> None:
    made = script.make_script([File("a.yaml", "a: 1\n"), Commands("cat a.yaml\n"), Commands("false\n")])
    assert made.startswith("set -euo pipefail\n")
    assert "cat > 'a.yaml' <<'END_OF_THE_FILE'\na: 1\nEND_OF_THE_FILE\n" in made
    assert made.endswith("{\nfalse\n} > 1.out 2>&1\n")
