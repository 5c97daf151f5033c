"""Write the chart's dashboard.

python -m tests.monitoring            write it
python -m tests.monitoring --check    exit 1 when it would change
"""

from __future__ import annotations

import argparse
import sys

from tests.monitoring.dashboard import FILE, as_text


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail when it differs")
    text = as_text()
    if parser.parse_args(argv).check:
        if FILE.read_text() == text:
            return 0
        print("differs from tests/monitoring/panels.py, run `make dashboard`:", FILE)
        return 1
    FILE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
