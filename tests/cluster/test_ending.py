"""docs/contribute/test-bed.md: a test run, a start and a demo that are told to end take along all that they started."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster import instance as instances
from tests.cluster import wait_for
from tests.cluster.errors import NoSuchCluster
from tests.cluster.instance import Instance
from tests.cluster.processes import Process, start_time

ROOT = Path(__file__).parents[2]
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest")
STAGES = (sys.executable, "-m", "tests.stages", "--only", "integration", "-p", "tests.conftest")

LONG_TEST = """
import os, pathlib, time
import pytest

@pytest.mark.integration
def test_that_takes_long(control_plane):
    pathlib.Path("{told}.new").write_text(f"{{os.getpid()}} {{control_plane.name}}")
    pathlib.Path("{told}.new").rename("{told}")
    time.sleep(600)
"""


@contextmanager
def started(argv: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program that is gone when the block is left, with its output in `folder`/output."""
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(argv, cwd=ROOT, stdout=output, stderr=output, start_new_session=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def running_test(folder: Path) -> tuple[int, Instance]:
    """The pytest process that runs the long test, and its control plane."""
    told = folder / "told"
    wait_for("the long test runs", told.exists, 120)
    pid, name = told.read_text().split()
    return int(pid), instances.load(name)


def long_test(folder: Path) -> str:
    path = folder / "test_long.py"
    path.write_text(LONG_TEST.format(told=folder / "told"))
    return str(path)


def is_known(instance: Instance) -> bool:
    try:
        instances.load(instance.name)
    except NoSuchCluster:
        return False
    return True


def require_gone(instance: Instance, processes: Sequence[Process]) -> None:
    assert {process.name for process in processes} >= {"etcd", "kube-apiserver"}
    wait_for("no process is left", lambda: not any(process.alive for process in processes), 60)
    wait_for("its state is swept", lambda: not is_known(instance), 30)
    wait_for("its folder is gone", lambda: not instance.folder.exists(), 30)


@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_test_run_that_is_told_to_end_takes_its_control_plane_along(tmp_path: Path, number: int) -> None:
    with started([*PYTEST, long_test(tmp_path)], tmp_path) as run:
        _, instance = running_test(tmp_path)
        processes = instance.processes.all()
        run.send_signal(number)
        run.wait(60)
        require_gone(instance, processes)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("outermost", "number"),
    [
        ("stages", signal.SIGTERM),
        ("stages", signal.SIGINT),
        ("stages", signal.SIGKILL),
        ("make", signal.SIGTERM),
    ],
)
def test_the_outermost_program_of_a_test_run_ends_the_whole_tree(
    tmp_path: Path, outermost: str, number: int
) -> None:
    argv: Sequence[str] = [*STAGES, long_test(tmp_path)]
    if outermost == "make":
        makefile = tmp_path / "Makefile"
        makefile.write_text(f"SHELL := /bin/bash\ntest:\n\t@{' '.join(argv)}\n")
        argv = ["make", "-f", str(makefile), "test"]
    with started(argv, tmp_path) as run:
        pid, instance = running_test(tmp_path)
        processes = instance.processes.all()
        run.send_signal(number)
        run.wait(90)
        require_gone(instance, processes)
        wait_for("pytest has ended", lambda: start_time(pid) == 0, 60)


@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_start_that_is_stopped_half_way_leaves_nothing(tmp_path: Path, number: int) -> None:
    name = f"test-half-{os.getpid()}"
    argv = [sys.executable, "-m", "tests.cluster", "up", "--control-plane", "--name", name]

    def api_server_runs() -> Instance | None:
        found = [instance for instance in instances.load_all() if instance.name == name]
        names = {process.name for instance in found for process in instance.processes.all()}
        return found[0] if "kube-apiserver" in names else None

    with started(argv, tmp_path) as start:
        instance: Instance = wait_for("it has begun", api_server_runs, 60, every_s=0.01)
        processes = instance.processes.all()
        start.send_signal(number)
        assert start.wait(60) == 128 + number, (tmp_path / "output").read_text()
        require_gone(instance, processes)


@pytest.mark.integration
def test_a_program_that_forgets_its_control_plane_takes_it_along_too(tmp_path: Path) -> None:
    name = f"test-forgotten-{os.getpid()}"
    code = (
        f"from tests.cluster import start_control_plane; start_control_plane({name!r}); raise SystemExit(3)"
    )
    with started([sys.executable, "-c", code], tmp_path) as program:
        assert program.wait(120) == 3, (tmp_path / "output").read_text()
    assert name not in [instance.name for instance in instances.load_all()]


DEMO = """
import sys
from pathlib import Path
from tests.cluster import instance as instances
from tests.cluster.api import describe
from tests.demo import __main__, clusters, up

instances.state_root = lambda: Path({state!r})
def start():
    made = instances.new_instance(clusters.NAME, "127.0.0.1", None, owned=False)
    made.save()
    return describe(made)
def show(cluster, images, clock):
    print("half way", flush=True)
    up.progress.run(["sleep", "600"])
if {ran!r}:
    start()
    up.lifecycle.is_up = lambda instance: True
up._announce = lambda embedded: None
up._build_and_start = lambda embedded, clock: (embedded or start(), None)
up._show = show
sys.exit(__main__.main(["up"]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("ran_before", [False, True])
def test_a_demo_that_is_stopped_half_way_removes_the_cluster_that_it_has_started(
    tmp_path: Path, number: int, ran_before: bool
) -> None:
    code = textwrap.dedent(DEMO).format(state=str(tmp_path / "state"), ran=ran_before)
    output = tmp_path / "output"
    with started([sys.executable, "-c", code], tmp_path) as demo:
        wait_for("it is half way", lambda: "half way" in output.read_text(), 60)
        demo.send_signal(number)
        assert demo.wait(60) == 128 + number
    assert (tmp_path / "state" / "demo").exists() is ran_before
    assert "make demo" in output.read_text().splitlines()[-1]
