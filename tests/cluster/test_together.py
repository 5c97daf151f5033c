"""docs/contribute/test-bed.md: parts that run side by side end together: the first failure stops the others and is told last."""

import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from tests.cluster import cache, progress, together, wait_for
from tests.cluster.errors import ClusterError, CommandFailed, Stopped
from tests.cluster.processes import start_time

FOREVER = "600"


def test_results_come_in_the_order_of_the_calls() -> None:
    assert together.run_together(lambda: 1, lambda: "two") == [1, "two"]


def test_a_part_that_fails_ends_the_programs_of_the_others_and_their_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep {FOREVER} & echo $! $$ > {pids}.new; mv {pids}.new {pids}; wait"

    def fail() -> None:
        wait_for("the other runs", pids.exists)
        progress.run(["sh", "-c", "echo no space >&2; exit 3"])

    with pytest.raises(CommandFailed, match="no space"):
        together.run_together(lambda: progress.run(["sh", "-c", script]), fail)
    assert [start_time(int(pid)) for pid in pids.read_text().split()] == [0, 0]


def test_parts_of_parts_end_too_and_so_do_pauses_and_waits_for_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ended: list[str] = []
    ready = threading.Barrier(4)

    def waits(what: str) -> None:
        ready.wait()
        try:
            if what == "pause":
                together.pause(float(FOREVER))
            elif what == "program":
                progress.run(["sleep", FOREVER])
            else:
                with cache.exclusive("mine"):
                    pass
        except Stopped:
            ended.append(what)
            raise

    def nested() -> None:
        together.run_together(lambda: waits("program"), lambda: waits("pause"), lambda: waits("lock"))

    def fail() -> None:
        ready.wait()
        raise ClusterError("the cause")

    with cache.exclusive("mine"), pytest.raises(ClusterError, match="the cause"):
        together.run_together(nested, fail)
    assert sorted(ended) == ["lock", "pause", "program"]


def test_tidying_up_goes_on_while_the_parts_are_ended() -> None:
    tidied: list[str] = []
    runs = threading.Event()

    def start() -> None:
        try:
            runs.set()
            together.pause(float(FOREVER))
        finally:
            with together.apart():
                tidied.append(progress.run(["echo", "gone"]).strip())

    def fail() -> None:
        runs.wait()
        raise ClusterError("the cause")

    with pytest.raises(ClusterError, match="the cause"):
        together.run_together(start, fail)
    assert tidied == ["gone"]


def test_ctrl_c_ends_all_parts() -> None:
    """By the signal that a terminal sends, to a program of its own."""
    code = f"""
        import os, signal, threading
        from tests import ending
        from tests.cluster import progress, together
        ending.end_on_signals()
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        together.run_together(lambda: progress.run(["sleep", "{FOREVER}"]), lambda: together.pause({FOREVER}))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False, timeout=60
    )
    assert "KeyboardInterrupt" in done.stderr.splitlines()[-1]


DEMO = """
import sys
from tests.cluster import images, node, progress, together
from tests import downloads
from tests.demo import __main__, clusters, up

downloads.PAUSES_S = (0.0,)
clusters.foreign_kubeconfig = lambda: None
up.lifecycle.find_running = lambda name: None
up._announce = lambda embedded: print("long work begins", flush=True)
slow = lambda: progress.run(["sleep", "600"])
up._start = slow
up.image_builds.site_packages = slow
up.image_builds.build_images = lambda: progress.download(["sh", "-c", "echo 'step 7'; echo 'lookup index.example: Temporary failure in name resolution' >&2; exit 1"])
sys.exit(__main__.main(["up"]))
"""


def test_a_demo_whose_download_fails_for_good_ends_at_once_with_the_cause_and_the_command_to_go_on() -> None:
    done = subprocess.run(
        [sys.executable, "-c", DEMO],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    *_, cause, go_on = done.stdout.splitlines()
    assert done.returncode == 1
    assert "Temporary failure in name resolution" in cause
    assert "make demo" in go_on
