"""docs/api.md: every row names a test, and that test exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "api.md"
HEADER = ["behaviour", "vLLM", "here", "test"]
_CELL = re.compile(r"(?<!\\)\|")
_TEST = re.compile(r"`([^`:]+)::(\w+)`")


def rows() -> Iterator[tuple[int, list[str]]]:
    """The number of each line of a table, and its cells."""
    for number, line in enumerate(PAGE.read_text().splitlines(), 1):
        if line.startswith("|") and not line.startswith("|---"):
            yield number, [cell.strip() for cell in _CELL.split(line)[1:-1]]


@cache
def functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


def test_every_row_names_a_test_that_exists() -> None:
    wrong = []
    found = 0
    for number, cells in rows():
        if cells == HEADER:
            continue
        found += 1
        tests = _TEST.findall(cells[-1])
        missing = [
            name for path, name in tests if not (ROOT / path).is_file() or name not in functions_of(path)
        ]
        if len(cells) != len(HEADER) or not all(cells) or not tests or missing:
            wrong.append(f"docs/api.md:{number}: {cells} {missing}")
    assert not wrong, "\n".join(wrong)
    assert found > 5


def test_no_behaviour_stands_there_twice() -> None:
    names = [cells[0] for _, cells in rows() if cells != HEADER]
    assert sorted(set(names)) == sorted(names)
