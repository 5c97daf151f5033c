"""pytest plugin: unit tests first, then integration, then end to end; and what each stage took, before pytest's own
closing line.

In a run of all, three processes share the unit and integration tests, for some of them compute and others wait: this one
and two beside it, which write their results to files. This one shows and counts them as if it had made them itself, and
goes on with the end-to-end tests alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

STAGES = ("unit", "integration", "e2e")

EARLIER = "LLMENDPOINT_STAGES"
"""Environment of a run of all: the seconds of the stages before, as JSON."""
SHARE = "LLMENDPOINT_SHARE"
"""Environment of a process beside: its share of the tests, one of `SHARES`."""

SHARES = ("server-and-gateway", "rollouts")
"""The two together and what is left take about equally long."""
ROLLOUTS = frozenset(
    f"test_{name}.py" for name in ("fit", "hub", "leadership", "models", "rollout", "scaledown")
)
"""Files of tests/integration that are in the second."""

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "build"


def stage_of(item: pytest.Item) -> str:
    return next((name for name in ("e2e", "integration") if item.get_closest_marker(name)), "unit")


def share_of(item: pytest.Item) -> str | None:
    """Which process beside runs the test in a run of all; None: the one that shows the results."""
    stage, folder = stage_of(item), item.path.relative_to(ROOT).parts[0]
    if stage == "unit" and folder in ("server", "gateway"):
        return "server-and-gateway"
    unit_too = stage == "unit" and folder in ("cli", "fit")
    return "rollouts" if unit_too or (stage == "integration" and item.path.name in ROLLOUTS) else None


def results_of(share: str) -> Path:
    return FOLDER / f"results-{share}.jsonl"


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


class OwnShare:
    """In a process beside: keeps the tests of its share, and hands every result over as a line of JSON."""

    def __init__(self, config: pytest.Config, share: str) -> None:
        self._config = config
        self._share = share

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if share_of(item) == self._share]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        content = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        with results_of(self._share).open("a") as file:
            print(json.dumps(content), file=file)


class Beside:
    """Starts the processes beside and takes their results before the first end-to-end test.

    A test without a result fails the run: it must not go missing because a process broke off.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._awaited: set[str] = set()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def pytest_sessionstart(self) -> None:
        self._processes = {share: self._start(share) for share in SHARES}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self._awaited = {item.nodeid for item in items if share_of(item)}
        items[:] = [item for item in items if item.nodeid not in self._awaited]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        session.testscollected += len(self._awaited)  # for the percentages
        result = yield
        self._take(session)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # around pytest-timeout, which would count the wait
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if stage_of(item) == "e2e":
            self._take(item.session)
        return (yield)

    def pytest_sessionfinish(self) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGINT)  # pytest ends what its tests began
            process.wait(60)

    def _start(self, share: str) -> subprocess.Popen[bytes]:
        FOLDER.mkdir(exist_ok=True)
        results_of(share).write_text("")
        environment = {k: v for k, v in os.environ.items() if k != EARLIER} | {SHARE: share}
        arguments = [str(argument) for argument in self._config.invocation_params.args]
        with _log_of(share).open("w") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "pytest", *arguments], env=environment, stdout=log, stderr=subprocess.STDOUT
            )  # fmt: skip

    def _take(self, session: pytest.Session) -> None:
        """Wait for the processes and report all that they found; only the first call does something."""
        for share in SHARES if self._awaited else ():
            self._processes[share].wait()
            for line in results_of(share).read_text().splitlines():
                self._report(json.loads(line))
        if self._awaited:
            missing, self._awaited = self._awaited, set()
            for share in SHARES:
                self._config.get_terminal_writer().write(_log_of(share).read_text(errors="replace")[-6000:])
            session.shouldfail = f"{len(missing)} tests gave no result, one is {min(missing)}"
            raise session.Failed(session.shouldfail)

    def _report(self, content: dict[str, object]) -> None:
        hook = self._config.hook
        report = hook.pytest_report_from_serializable(config=self._config, data=content)
        hook.pytest_runtest_logreport(report=report)
        if report.when == "teardown":
            self._awaited.discard(report.nodeid)


def _log_of(share: str) -> Path:
    return FOLDER / f"stage-{share}.log"


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(StageTimes(), "stage-times")
    if share := os.environ.get(SHARE):
        config.pluginmanager.register(OwnShare(config, share), "own-share")
    elif EARLIER in os.environ:
        config.pluginmanager.register(Beside(config), "beside")
