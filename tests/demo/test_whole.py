"""README.md: its two commands work as printed, and so do the commands that the demo ends with."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.demo.product import ROOT

FIRST_RUN_S = 3600


def shell(command: str, seconds: float) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def commands(printed: str) -> list[str]:
    """What follows `To play on:`, one command a line."""
    _, _, after = printed.partition("To play on:\n\n")
    return [line.strip() for line in after.splitlines() if line.startswith("  ")]


@pytest.mark.extended
@pytest.mark.timeout(FIRST_RUN_S)
def test_the_demo_answers_and_every_command_that_it_prints_works_until_it_is_taken_down() -> None:
    printed = shell("make demo", FIRST_RUN_S)
    try:
        export, *others = commands(printed)
        assert export.startswith("export KUBECONFIG=")
        [chat] = [line for line in others if line.startswith("curl -N ")]
        assert chat in re.sub(r"\s+", " ", (ROOT / "README.md").read_text()), "README shows another one"
        for line in others:
            answer = shell(f"{export}\n{line}", 300) if line != "make demo-down" else ""
            if line == chat:
                assert "data: [DONE]" in answer
    finally:
        shell("make demo-down", 300)
    assert "make demo-down" in others
