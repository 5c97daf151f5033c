"""pytest plugin: unit tests first, then integration, then end to end; and what each stage took, before pytest's own
closing line."""

from __future__ import annotations

import json
import os

import pytest

STAGES = ("unit", "integration", "e2e")


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
        stage = self.stages[report.nodeid]
        self.seconds[stage] = self.seconds.get(stage, 0.0) + report.duration
        self.tests[stage] = self.tests.get(stage, 0) + (report.when == "call")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        earlier: dict[str, float] = json.loads(os.environ.get("LLMENDPOINT_STAGES", "{}"))
        terminalreporter.section("stages")
        for name, seconds in earlier.items():
            terminalreporter.write_line(f"{name:12} {seconds:6.0f} s")
        for name in STAGES:
            if name in self.seconds:
                terminalreporter.write_line(
                    f"{name:12} {self.seconds[name]:6.0f} s  {self.tests[name]} tests"
                )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(StageTimes(), "stage-times")
