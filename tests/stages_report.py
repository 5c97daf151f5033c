"""pytest plugin: unit tests first, then integration, then end to end; and what each stage took, before pytest's own
closing line.

In a run of all, the unit tests are run by a process of their own beside the integration tests: they compute, those
wait. That process writes its results to a file, and this one shows and counts them as if it had made them itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import ending

STAGES = ("unit", "integration", "e2e")
UNIT = "not integration and not e2e and not extended"

EARLIER = "LLMENDPOINT_STAGES"
"""Environment of a run of all: the seconds of the stages before, as JSON."""
RESULTS = "LLMENDPOINT_UNIT_RESULTS"
"""Environment of the process of the unit tests: the file that it writes its results to."""

FOLDER = Path(__file__).parent.parent / "build"


def stage_of(item: pytest.Item) -> str:
    return next((name for name in ("e2e", "integration") if item.get_closest_marker(name)), "unit")


class StageTimes:
    """Seconds spent in set-up, call and tear-down of the tests of each stage."""

    def __init__(self) -> None:
        self.stages: dict[str, str] = {}
        self.seconds: dict[str, float] = {}
        self.tests: dict[str, int] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: STAGES.index(stage_of(item)))
        self.stages = {item.nodeid: stage_of(item) for item in items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # A test that has another name in each process gave no result here: `UnitBeside` says so at the end.
        stage = self.stages.get(report.nodeid, "unit")
        self.seconds[stage] = self.seconds.get(stage, 0.0) + report.duration
        self.tests[stage] = self.tests.get(stage, 0) + (report.when == "call")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        earlier: dict[str, float] = json.loads(os.environ.get(EARLIER, "{}"))
        terminalreporter.section("stages")
        for name, seconds in earlier.items():
            terminalreporter.write_line(f"{name:12} {seconds:6.0f} s")
        for name in STAGES:
            if name in self.seconds:
                terminalreporter.write_line(
                    f"{name:12} {self.seconds[name]:6.0f} s  {self.tests[name]} tests"
                )


class ResultsWriter:
    """Hands every result over as a line of JSON."""

    def __init__(self, config: pytest.Config, path: Path) -> None:
        self._config = config
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        content = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        with self._path.open("a") as file:
            print(json.dumps(content), file=file)


class UnitBeside:
    """Starts the process of the unit tests and takes its results before the first end-to-end test.

    A unit test without a result fails the run: it must not go missing because that process broke off.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._awaited: set[str] = set()
        self._results = FOLDER / "unit-results.jsonl"
        self._log = FOLDER / "stage-unit.log"
        self._process: subprocess.Popen[bytes] | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self._awaited = {item.nodeid for item in items if stage_of(item) == "unit"}
        items[:] = [item for item in items if item.nodeid not in self._awaited]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        if not self._awaited:
            return (yield)
        session.testscollected += len(self._awaited)  # for the percentages
        with self._started() as self._process:
            result = yield
            self._take(session)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # around pytest-timeout, which would count the wait
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if stage_of(item) == "e2e":
            self._take(item.session)
        return (yield)

    @contextmanager
    def _started(self) -> Iterator[subprocess.Popen[bytes]]:
        FOLDER.mkdir(exist_ok=True)
        self._results.write_text("")
        environment = {k: v for k, v in os.environ.items() if k != EARLIER} | {RESULTS: str(self._results)}
        extra = [a for a in self._config.invocation_params.args if isinstance(a, str)]
        argv = [sys.executable, "-m", "pytest", *extra, "-m", UNIT]
        with (
            self._log.open("w") as log,
            ending.started_program(argv, cwd=Path.cwd(), env=environment, output=log) as process,
        ):
            yield process

    def _take(self, session: pytest.Session) -> None:
        """Wait for the process and report all that it found; only the first call does something."""
        if not self._awaited or self._process is None:
            return
        self._process.wait()
        for line in self._results.read_text().splitlines():
            report = read_report(self._config, line)
            self._config.hook.pytest_runtest_logreport(report=report)
            if report.when == "teardown":
                self._awaited.discard(report.nodeid)
        if self._awaited:
            missing, self._awaited = self._awaited, set()
            self._config.get_terminal_writer().write(self._log.read_text(errors="replace")[-6000:])
            session.shouldfail = f"{len(missing)} unit tests gave no result, one is {min(missing)}"
            raise session.Failed(session.shouldfail)


def read_report(config: pytest.Config, line: str) -> pytest.TestReport:
    """A report as it was before it was written as a line of JSON, in which a tuple is a list: a skipped test has one."""
    report: pytest.TestReport = config.hook.pytest_report_from_serializable(
        config=config, data=json.loads(line)
    )
    read: object = report.longrepr
    if isinstance(read, list):
        path, number, reason = read
        report.longrepr = path, number, reason
    return report


def pytest_configure(config: pytest.Config) -> None:
    ending.end_on_signals()
    config.pluginmanager.register(StageTimes(), "stage-times")
    if path := os.environ.get(RESULTS):
        config.pluginmanager.register(ResultsWriter(config, Path(path)), "results-writer")
    elif EARLIER in os.environ:
        config.pluginmanager.register(UnitBeside(config), "unit-beside")
