"""`make test`: lint, build, then one pytest run over unit, integration and end-to-end tests.

The binaries and images are built in the background while lint runs; the unit tests run beside the integration tests
(stages_report.py). Every stage prints its name, its result and its time; pytest's own closing line is the last that is
printed. Exit status: 0, or 1 with the name of the stage that failed, which ends the others at once. SIGTERM and Ctrl-C
end every program that was started, and what those had started.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests import ending, stages_report

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
BUILD_LOG = ROOT / "build" / "stage-build.log"
BUILD = ("nice", "-n", "5", sys.executable, "-m", "tests.cluster", "prepare")
_POLL_S = 0.5

LINT: tuple[tuple[str, ...], ...] = (
    ("ruff", "format", "--check", "--quiet", "."),
    ("ruff", "check", "--quiet", "."),
    ("lint-imports", "--no-cache"),
    ("mypy",),
    (
        "mypy",
        "tests/cluster",
        "tests/conftest.py",
        "tests/stages.py",
        "tests/release.py",
        "tests/docs",
        "tests/bench/cluster.py",
        "tests/reference",
        "tests/monitoring",
    ),
    ("python", "-m", "llmendpoint_operator.api.generate", "--check"),
    ("python", "-m", "tests.reference", "--check"),
    ("python", "-m", "tests.monitoring", "--check"),
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


class StageFailed(Exception):
    """Names the stage, and what of it failed."""

    def __init__(self, stage: str, what: str) -> None:
        super().__init__(what)
        self.stage = stage


class Build:
    """Binaries and images, built beside lint. Its output goes to a file that is shown when it fails."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.started = time.monotonic()
        self.process = process

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[Build]:
        BUILD_LOG.parent.mkdir(exist_ok=True)
        with BUILD_LOG.open("w") as log, ending.started_program(BUILD, cwd=ROOT, output=log) as process:
            yield cls(process)

    def check(self) -> None:
        """Raises StageFailed once it has failed."""
        if self.process.poll():
            print(BUILD_LOG.read_text(errors="replace")[-6000:].rstrip(), flush=True)
            raise StageFailed("build", f"see {BUILD_LOG.relative_to(ROOT)}")

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
        self.check()


@dataclass
class Clock:
    """How long each stage took, in seconds, in the order in which they ran."""

    taken: dict[str, float] = field(default_factory=dict)

    def run(
        self, stage: str, command: Sequence[str], quiet: bool = False, beside: Build | None = None
    ) -> None:
        """Run one command; what a quiet one said is shown when it fails. A failure of `beside` ends it."""
        started = time.monotonic()
        environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
        with (
            tempfile.TemporaryFile("w+") as said,
            ending.started_program(
                command, cwd=ROOT, env=environment, output=said if quiet else None
            ) as process,
        ):
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_S)
                if beside is not None:
                    beside.check()
            self.taken[stage] = self.taken.get(stage, 0.0) + time.monotonic() - started
            if process.returncode:
                said.seek(0)
                if quiet:
                    print(said.read().rstrip(), flush=True)
                raise StageFailed(stage, " ".join(command))


def lint(clock: Clock, beside: Build | None = None) -> None:
    strays = [p for p in (ROOT / "operator", ROOT / "tests" / "operator") if (p / "__init__.py").exists()]
    if strays:
        print(f"{strays[0]}/__init__.py would shadow the standard library's operator: remove it")
        raise StageFailed("lint", "package layout")
    for command in LINT:
        clock.run("lint", command, quiet=True, beside=beside)
    print(f"stage lint: ok, {clock.taken['lint']:.0f} s", flush=True)


def pytest_command(selection: str, extra: Sequence[str]) -> list[str]:
    plugin = ["-p", "tests.stages_report"]
    return [sys.executable, "-m", "pytest", "-q", "-m", SELECTIONS[selection], *plugin, *extra]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.stages",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", choices=["lint", "unit", "integration", "e2e"], help="one stage")
    arguments, extra = parser.parse_known_args()
    ending.end_on_signals()
    clock, started = Clock(), time.monotonic()
    try:
        run_stages(clock, arguments.only, extra)
    except StageFailed as error:
        print(f"stage {error.stage}: FAILED after {time.monotonic() - started:.0f} s: {error}", flush=True)
        again = f"--only {error.stage}" if error.stage in ("lint", "unit", "integration", "e2e") else ""
        print(f"to go on: {'make test' if not again else f'python -m tests.stages {again}'}", flush=True)
        return 1
    except KeyboardInterrupt:
        print("stages: stopped; all that was started has ended", flush=True)
        return ending.exit_status()
    return 0


def run_stages(clock: Clock, only: str | None, extra: Sequence[str]) -> None:
    """Raises StageFailed at the first that fails."""
    if only == "lint":
        lint(clock)
    elif only:
        clock.run(only, pytest_command(only, extra))
    else:
        with Build.running() as build:
            lint(clock, beside=build)
            build.wait(clock)
        print(f"stage build: ok, {clock.taken['build']:.0f} s (beside lint)", flush=True)
        os.environ[stages_report.EARLIER] = json.dumps(clock.taken)
        clock.run("tests", pytest_command("all", extra))


if __name__ == "__main__":
    sys.exit(main())
