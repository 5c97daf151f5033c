"""`make test`: lint, build, then one pytest run over unit, integration and end-to-end tests.

The binaries and images are built in the background while lint runs; the unit tests run beside the integration tests
(stages_report.py). Every stage prints its name, its result and its time; pytest's own closing line is the last that is
printed. Exit status: 0, or 1 with the name of the stage that failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests import stages_report

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
BUILD_LOG = ROOT / "build" / "stage-build.log"

LINT: tuple[tuple[str, ...], ...] = (
    ("ruff", "format", "--check", "--quiet", "."),
    ("ruff", "check", "--quiet", "."),
    ("lint-imports", "--no-cache"),
    ("mypy",),
    ("mypy", "tests/cluster", "tests/conftest.py", "tests/stages.py", "tests/bench/cluster.py"),
    ("python", "-m", "llmendpoint_operator.api.generate", "--check"),
)
SELECTIONS = {
    "unit": stages_report.UNIT,
    "integration": "integration and not extended",
    "e2e": "e2e and not extended",
    "all": "not extended",
}

EXAMPLES = """examples:
  python -m tests.stages                  everything, as CI does
  python -m tests.stages --only lint      format, lint, layers, types, generated files
  python -m tests.stages --only e2e -k rolling    pytest's own options go last
"""


@dataclass
class Clock:
    """How long each stage took, in seconds, in the order in which they ran."""

    taken: dict[str, float] = field(default_factory=dict)

    def run(self, stage: str, command: Sequence[str], quiet: bool = False) -> None:
        """Run one command; on failure print what it said and leave."""
        started = time.monotonic()
        environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, check=False, capture_output=quiet, text=True
        )
        self.taken[stage] = self.taken.get(stage, 0.0) + time.monotonic() - started
        if done.returncode:
            if quiet:
                print(done.stdout, done.stderr, sep="\n", flush=True)
            self.fail(stage, " ".join(command))

    def fail(self, stage: str, what: str) -> None:
        print(f"stage {stage}: FAILED after {self.taken[stage]:.0f} s: {what}", flush=True)
        raise SystemExit(1)


class Build:
    """Binaries and images, built beside lint. Its output goes to a file that is shown when it fails."""

    def __init__(self) -> None:
        BUILD_LOG.parent.mkdir(exist_ok=True)
        self.started = time.monotonic()
        with BUILD_LOG.open("w") as log:
            self.process = subprocess.Popen(
                ["nice", "-n", "5", sys.executable, "-m", "tests.cluster", "prepare"],
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def wait(self, clock: Clock) -> None:
        """Show the last line every 15 s, so that a long build is never silent."""
        while True:
            try:
                self.process.wait(15)
                break
            except subprocess.TimeoutExpired:
                lines = BUILD_LOG.read_text(errors="replace").splitlines() or ["(nothing yet)"]
                print(f"  build {time.monotonic() - self.started:4.0f} s: {lines[-1][:140]}", flush=True)
        clock.taken["build"] = time.monotonic() - self.started
        if self.process.returncode:
            print(BUILD_LOG.read_text(errors="replace")[-6000:])
            clock.fail("build", f"see {BUILD_LOG.relative_to(ROOT)}")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)


def lint(clock: Clock) -> None:
    strays = [p for p in (ROOT / "operator", ROOT / "tests" / "operator") if (p / "__init__.py").exists()]
    if strays:
        print(f"{strays[0]}/__init__.py would shadow the standard library's operator: remove it")
        clock.taken["lint"] = 0.0
        clock.fail("lint", "package layout")
    for command in LINT:
        clock.run("lint", command, quiet=True)
    print(f"stage lint: ok, {clock.taken['lint']:.0f} s", flush=True)


def pytest_command(selection: str, extra: Sequence[str]) -> list[str]:
    plugin = ["-p", "tests.stages_report"]
    return [sys.executable, "-m", "pytest", "-q", "-m", SELECTIONS[selection], *plugin, *extra]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.stages",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", choices=["lint", "unit", "integration", "e2e"], help="one stage")
    arguments, extra = parser.parse_known_args()
    clock = Clock()
    if arguments.only == "lint":
        lint(clock)
        return
    if arguments.only:
        clock.run(arguments.only, pytest_command(arguments.only, extra))
        return
    build = Build()
    try:
        lint(clock)
        build.wait(clock)
    finally:
        build.stop()
    print(f"stage build: ok, {clock.taken['build']:.0f} s (beside lint)", flush=True)
    os.environ[stages_report.EARLIER] = json.dumps(clock.taken)
    clock.run("tests", pytest_command("all", extra))


if __name__ == "__main__":
    main()
