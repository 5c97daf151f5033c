"""docs/decisions/a-real-kubernetes-for-tests.md: a node takes back all that it made, even when everything of it was killed."""

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from tests.cluster import Cluster, instance, lifecycle, start_node, wait_for
from tests.cluster.baseimage import obtain_base
from tests.cluster.errors import NoSuchCluster
from tests.cluster.instance import state_root
from tests.cluster.machine_state import observe
from tests.cluster.pods import web_pod
from tests.ports import free_port

pytestmark = pytest.mark.e2e

NAME = f"test-hygiene-{os.getpid()}"
FOLDER = state_root() / NAME


@pytest.fixture
def taken_away() -> Iterator[None]:
    """A machine holds one node: one that outlives its failed test would fail each test after it."""
    yield
    with contextlib.suppress(NoSuchCluster):
        lifecycle.down(instance.load(NAME))


@pytest.mark.usefixtures("fresh_machine", "taken_away")
def test_after_kill_9_of_everything_a_second_up_works_and_down_leaves_the_machine_as_before() -> None:
    before = observe(FOLDER)
    first = _start_with_a_pod()
    started = observe(FOLDER)
    for kind in ("packet_filter", "links", "mounts", "cgroups", "processes", "paths"):
        # Not a superset: what other programs of the machine had before may end meanwhile.
        assert getattr(started, kind) - getattr(before, kind), f"a running node shows in none of the {kind}"
    _kill_everything(first)
    second = _start_with_a_pod()
    second.stop()
    assert observe(FOLDER) == before


def _start_with_a_pod() -> Cluster:
    cluster = start_node(NAME, gpus=1)
    cluster.import_image(obtain_base())
    cluster.apply(web_pod("web", accelerators=1, host_port=free_port()))
    cluster.wait_ready("web")
    return cluster


def _kill_everything(cluster: Cluster) -> None:
    """SIGKILL to the components, the shims and the containers alike."""
    for line in observe(FOLDER).processes:
        # A shim ends by itself when its container was killed first.
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(line.split()[0]), signal.SIGKILL)
    wait_for("all is dead", lambda: not any(process.alive for process in cluster.own.processes.all()))
