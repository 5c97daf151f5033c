"""What a page, a template or a workflow may name: targets of make, tests, classes, files."""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
CODE = ("fit", "verdicts", "operator", "gateway", "server", "cli", "tests")
"""Folders with Python files."""
_MAKE = re.compile(r"\bmake ([a-z][a-z0-9-]*)")
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


@cache
def make_targets() -> dict[str, str]:
    """Every target of the Makefile with its recipe."""
    text = (ROOT / "Makefile").read_text()
    return dict(re.findall(r"^([a-z][a-z0-9-]*):.*\n((?:\t.*\n)*)", text, re.MULTILINE))


@cache
def _sources() -> str:
    paths = (path for folder in CODE for path in sorted((ROOT / folder).rglob("*.py")))
    return "\n".join(path.read_text() for path in paths)


@cache
def written_tests() -> frozenset[str]:
    """The name of every test."""
    return frozenset(re.findall(r"^ *(?:async )?def (test_\w+)", _sources(), re.MULTILINE))


@cache
def classes() -> frozenset[str]:
    """The name of every class."""
    return frozenset(re.findall(r"^ *class (\w+)", _sources(), re.MULTILINE))


def code_in(page: str) -> str:
    """What a page or a workflow writes as code: fenced, between backticks, or as a step to run."""
    fenced, rest = "\n".join(_FENCED.findall(page)), _FENCED.sub("", page)
    return "\n".join([fenced, *re.findall(r"`[^`\n]+`|^ *-? *run: .*$", rest, re.MULTILINE)])


def unknown_targets(page: str) -> set[str]:
    """What a page or a workflow calls by make, and the Makefile does not have."""
    return set(_MAKE.findall(code_in(page))) - set(make_targets())


def broken_links(page: Path) -> list[str]:
    """Links of a page to files that are not there."""
    return [link for link in _LINK.findall(page.read_text()) if not (page.parent / link).exists()]
