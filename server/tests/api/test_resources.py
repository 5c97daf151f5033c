"""docs/contribute/contracts.md: the server keeps to its container's limits, and the cause of its end is its termination message."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
import structlog

from llmendpoint_server import logs, resources


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_the_processor_quota_is_read_from_both_kinds_of_cgroup(
    tmp_path: Path, files: dict[str, str], quota: float | None
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content + "\n")
    assert resources.cpu_quota(tmp_path) == quota
    available = len(os.sched_getaffinity(0))
    assert resources.usable_threads(tmp_path) == (
        available if quota is None else min(available, 2 if quota > 1 else 1)
    )


def test_the_open_file_limit_is_raised_to_the_hard_limit_and_a_low_one_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(resources, "WANTED_OPEN_FILES", before[1] + 1)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[1]), before[1]))
        with structlog.testing.capture_logs() as lines:
            resources.raise_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
        assert [line["log_level"] for line in lines] == ["warning"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_cause_of_an_end_is_the_termination_message_where_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("something longer that was there before")
    logs.log_fatal("The model is missing.", 3, str(tmp_path / "log"))
    assert (tmp_path / "log").read_text() == "The model is missing."
    logs.log_fatal("The model is missing.", 3, str(tmp_path / "absent"))
    assert not (tmp_path / "absent").exists()
