"""pytest plugin: unit tests first, then integration, then end to end; and what each stage took, before pytest's own
closing line.

In a run of all (stages.py), some tests are run by processes of their own beside this one. Each writes its results to a
file, and this one shows and counts them as if it had made them itself.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest

STAGES = ("unit", "integration", "e2e")

EARLIER = "LLMENDPOINT_STAGES"
"""Environment of a run of all: the seconds of the stages before, as JSON."""
RESULTS = "LLMENDPOINT_RESULTS"
"""Environment of a process beside: the file that it writes its results to. It holds a lock on it until it ends."""
BESIDE = "LLMENDPOINT_RESULTS_BESIDE"
"""Environment of a run of all: the files of the processes beside it, as a JSON object from file to log."""

OTHER_HALF = frozenset(
    f"test_{name}.py" for name in ("fit", "hub", "leadership", "models", "rollout", "scaledown")
)
"""Files of tests/integration that take about as long as the rest of the integration tests."""


def stage_of(item: pytest.Item) -> str:
    return next((name for name in ("e2e", "integration") if item.get_closest_marker(name)), "unit")


def runs_beside(item: pytest.Item) -> bool:
    stage = stage_of(item)
    return stage == "unit" or (stage == "integration" and item.path.name in OTHER_HALF)


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
        stage = self.stages[report.nodeid]
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


class ResultsReader:
    """Takes the results of the processes beside before the first end-to-end test.

    A test without a result fails the run: it must not go missing because a process broke off.
    """

    def __init__(self, config: pytest.Config, beside: dict[str, str]) -> None:
        self._config = config
        self._beside = beside
        self._awaited: set[str] = set()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self._awaited = {item.nodeid for item in items if runs_beside(item)}
        items[:] = [item for item in items if item.nodeid not in self._awaited]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        session.testscollected += len(self._awaited)  # for the percentages
        result = yield
        self._take(session)
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        if stage_of(item) == "e2e":
            self._take(item.session)

    def _take(self, session: pytest.Session) -> None:
        """Wait for the processes and report all that they found; only the first call does something."""
        hook = self._config.hook
        for path in self._beside:
            with open(path) as results:
                fcntl.flock(results, fcntl.LOCK_SH)
                for line in results:
                    report = hook.pytest_report_from_serializable(config=self._config, data=json.loads(line))
                    hook.pytest_runtest_logreport(report=report)
                    if report.when == "teardown":
                        self._awaited.discard(report.nodeid)
        logs, self._beside = list(self._beside.values()), {}
        if self._awaited:
            missing, self._awaited = self._awaited, set()
            for log in logs:
                self._config.get_terminal_writer().write(Path(log).read_text(errors="replace")[-6000:])
            session.shouldfail = f"{len(missing)} tests beside gave no result, one is {min(missing)}"
            raise session.Failed(session.shouldfail)


class OnlyBeside:
    """What a process beside runs: the unit tests, or the half of the integration tests that is its."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if runs_beside(item)]


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(StageTimes(), "stage-times")
    if path := os.environ.get(RESULTS):
        config.pluginmanager.register(OnlyBeside(), "only-beside")
        config.pluginmanager.register(ResultsWriter(config, Path(path)), "results-writer")
    elif beside := os.environ.get(BESIDE):
        config.pluginmanager.register(ResultsReader(config, json.loads(beside)), "results-reader")
