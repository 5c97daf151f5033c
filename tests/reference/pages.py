"""Pages of which a person writes most, and the code the rest: each part stands between two marks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

Parts = Mapping[str, Callable[[], str]]

_PART = re.compile(r"(<!-- made by `make reference`: (\w+) -->\n).*?(\n<!-- end of \2 -->)", re.DOTALL)


def fill(page: str, parts: Parts) -> str:
    """The page with each of its parts made anew. Raises KeyError for a part that nothing makes, and ValueError for one
    that the page lacks."""
    missing = set(parts) - {name for _, name, _ in _PART.findall(page)}
    if missing:
        raise ValueError(f"the page has no place for: {', '.join(sorted(missing))}")
    return _PART.sub(lambda found: f"{found[1]}\n{parts[found[2]]().strip()}\n{found[3]}", page)


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table. A `|` inside a cell is escaped."""
    names = list(heads)
    lines = [names, ["---"] * len(names), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines).replace("|  |", "| |")
