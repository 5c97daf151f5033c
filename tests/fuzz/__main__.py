"""Send bodies of every kind to the real server and through the real gateway, and judge the answers.

Exit status: 0 when every answer was one that the contract names, every process is alive, and nothing is held; else 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz import campaign
from tests.fuzz.targets import running_targets

FOLDER = Path(__file__).parent.parent.parent / "build" / "fuzz"
EXAMPLES = """examples:
  python -m tests.fuzz                     20,000 bodies
  python -m tests.fuzz --bodies 500 --seed 7
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--bodies", type=int, default=20000, help="how many requests (default: 20000)")
    parser.add_argument(
        "--seed", type=int, default=0, help="the same seed draws the same bodies (default: 0)"
    )
    arguments = parser.parse_args(argv)
    print("starting two servers with the demo model, and the gateway", flush=True)
    with running_targets() as targets:
        report = campaign.run(targets, arguments.bodies, arguments.seed, lambda line: print(line, flush=True))
        left = targets.settle()
        report.watch(targets)
    show(report, left)
    return 1 if report.wrong or left else 0


def show(report: campaign.Report, left: dict[str, str]) -> None:
    for (target, status, code), count in sorted(report.answers.items()):
        print(f"  {target:8} {status or '':3} {code:28} {count:6}")
    for name, mib in report.memory.items():
        print(f"  {name:28} at most {mib:5.0f} MiB")
    for entry in report.wrong:
        print(f"WRONG: {entry['target']}: {entry['answer']}: {entry['request']}")
    if report.wrong:
        print(f"their bodies: {campaign.write(report, FOLDER)}")
    for name, what in left.items():
        print(f"LEFT: {name}: {what}")
    print(f"{report.sent} requests, {len(report.wrong)} wrong answers, {len(left)} things left behind")


if __name__ == "__main__":
    sys.exit(main())
