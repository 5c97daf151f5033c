"""What a benchmark leaves: build/bench/<name>.json, a list of figures, each beside what it is compared with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).parent.parent.parent / "build" / "bench"


@dataclass(frozen=True)
class Result:
    """One figure. `ratio` is value / what `against` names; `goal` is a sentence such as `ratio >= 1.3`, or empty."""

    metric: str
    value: float
    unit: str
    against: str = ""
    ratio: float | None = None
    goal: str = ""


def write(name: str, results: Sequence[Result]) -> Path:
    """Write build/bench/<name>.json and print the figures as a table."""
    path = save(name, results)
    print("\n".join(table(results)))
    print(f"written to {path.relative_to(RESULTS.parent.parent)}")
    return path


def save(name: str, results: Sequence[Result]) -> Path:
    """Write build/bench/<name>.json and say nothing."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    return path


def read(name: str) -> list[Result]:
    """The figures that the last run of this benchmark left. Raises FileNotFoundError when it never ran."""
    return [Result(**row) for row in json.loads((RESULTS / f"{name}.json").read_text())]


def table(results: Sequence[Result]) -> list[str]:
    """Lines of a Markdown table that reads well in a terminal too."""
    rows = [("metric", "value", "against", "ratio", "goal")]
    for r in results:
        ratio = "" if r.ratio is None else f"{r.ratio:.2f}"
        rows.append((r.metric, f"{figure(r.value)} {r.unit}", r.against, ratio, r.goal))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in rows]
    return [lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]]


def figure(value: float) -> str:
    """Three significant digits, no exponent: 0.123, 4.56, 78.9, 1234."""
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"
