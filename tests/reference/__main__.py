"""Write the parts of docs/reference that are made from the chart, the CLI, the API and the metrics.

python -m tests.reference            write what differs
python -m tests.reference --check    exit 1 when something would be written
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from tests.reference import api, responses
from tests.reference.chart import chart_values
from tests.reference.commands import commands, sample
from tests.reference.metrics import batch_metrics, engine_metrics, gateway_metrics, operator_metrics
from tests.reference.pages import Parts, fill

PAGES = Path(__file__).parents[2] / "docs" / "reference"
SAMPLES = ("observing", "rejected", "no_accelerator", "hanging", "no_operator", "history", "top")
MADE: dict[str, Parts] = {
    "api.md": {
        "paths": api.paths,
        "fields": api.fields,
        "unsupported": api.unsupported,
        "response_fields": responses.fields,
        "response_unsupported": responses.unsupported,
        "gateway_bounds": api.gateway_bounds,
        "engine_bounds": api.engine_bounds,
    },
    "chart.md": {"values": chart_values},
    "cli.md": {"commands": commands, **{name: partial(sample, name) for name in SAMPLES}},
    "metrics.md": {
        "operator": operator_metrics,
        "gateway": gateway_metrics,
        "batch": batch_metrics,
        "engine": engine_metrics,
    },
}


def stale(write: bool) -> list[str]:
    """The pages that differ from the code; with `write` they are put right."""
    found = []
    for name, parts in MADE.items():
        page = (PAGES / name).read_text()
        filled = fill(page, parts)
        if filled == page:
            continue
        found.append(name)
        if write:
            (PAGES / name).write_text(filled)
    return found


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a page differs")
    check = parser.parse_args(argv).check
    found = stale(write=not check)
    for name in found:
        print(f"{'differs from the code, run `make reference`:' if check else 'wrote'} docs/reference/{name}")
    return 1 if check and found else 0


if __name__ == "__main__":
    sys.exit(main())
