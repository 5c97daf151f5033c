"""docs/contribute/test-bed.md: `make test` ends with the first stage that fails, and the last lines say how to go on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ending
from tests.stages_report import read_report

STAGES = """
import sys
from pathlib import Path
from tests import stages
stages.BUILD_LOG = Path({folder!r}) / "build.log"
stages.ROOT = Path({folder!r})
stages.LINT = (("python", "-c", {lint!r}),)
stages.BUILD = (sys.executable, "-c", {build!r})
sys.argv = ["stages"]
sys.exit(stages.main())
"""
LONG = "import time; time.sleep(600)"
FAILS = "import sys; sys.exit('no such module: 404 Not Found')"


def run_stages(folder: Path, lint: str, build: str) -> "subprocess.CompletedProcess[str]":
    code = STAGES.format(folder=str(folder), lint=lint, build=build)
    return subprocess.run(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=90,
    )


def test_a_build_that_fails_ends_lint_and_is_the_last_that_is_told(tmp_path: Path) -> None:
    done = run_stages(tmp_path, lint=LONG, build=FAILS)
    assert done.returncode == 1
    *_, cause, stage, go_on = done.stdout.splitlines()
    assert "404 Not Found" in cause
    assert stage.startswith("stage build: FAILED")
    assert go_on == "to go on: make test"


def test_lint_that_fails_ends_the_build(tmp_path: Path) -> None:
    done = run_stages(tmp_path, lint="import sys; sys.exit('unused import')", build=LONG)
    assert done.returncode == 1
    *_, cause, stage, go_on = done.stdout.splitlines()
    assert cause == "unused import"
    assert stage.startswith("stage lint: FAILED")
    assert go_on == "to go on: python -m tests.stages --only lint"


def test_a_program_has_ended_when_its_block_is_left(tmp_path: Path) -> None:
    with ending.started_program([sys.executable, "-c", LONG], cwd=tmp_path) as program:
        assert program.poll() is None
    assert program.returncode is not None


def test_a_skipped_test_of_the_process_beside_is_shown_as_one(pytestconfig: pytest.Config) -> None:
    why = ("test_gpu.py", 7, "Skipped: there is no CUDA device")
    report = pytest.TestReport(
        "test_gpu.py::test_a", ("test_gpu.py", 7, "test_a"), {}, "skipped", why, "setup"
    )
    data = pytestconfig.hook.pytest_report_to_serializable(config=pytestconfig, report=report)
    assert read_report(pytestconfig, json.dumps(data)).longrepr == why
