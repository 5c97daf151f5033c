"""Clusters for the tests: started once for a run, on first use.

`LLMENDPOINT_CLUSTER=NAME` makes both fixtures use a cluster that already runs (`python -m tests.cluster up`), which
saves its start; such a cluster is left running.
"""

import os
from collections.abc import Iterator

import pytest

from tests import ending
from tests.cluster import Cluster, connect, start_control_plane, start_node


def pytest_configure() -> None:
    """SIGTERM ends a run as Ctrl-C does, with the fixtures' tidying up."""
    ending.end_on_signals()


def _borrowed_cluster() -> Cluster | None:
    name = os.environ.get("LLMENDPOINT_CLUSTER")
    return connect(name) if name else None


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Cluster]:
    """A real API server, scheduler and controller manager; no node, so pods stay Pending."""
    borrowed = _borrowed_cluster()
    cluster = borrowed or start_control_plane(f"test-{os.getpid()}-api")
    yield cluster
    if not borrowed:
        cluster.stop()


@pytest.fixture(scope="session")
def node() -> Iterator[Cluster]:
    """A whole cluster with one node and fake accelerators; needs root."""
    borrowed = _borrowed_cluster()
    if borrowed and not borrowed.has_node:
        pytest.fail(f"LLMENDPOINT_CLUSTER={borrowed.name} is a control plane alone; these tests need a node")
    cluster = borrowed or start_node(f"test-{os.getpid()}-node")
    yield cluster
    if not borrowed:
        cluster.stop()


@pytest.fixture
def fresh_machine() -> None:
    """For tests that bring up a node of their own; they run before the session's node is started."""
    if os.environ.get("LLMENDPOINT_CLUSTER"):
        pytest.skip("LLMENDPOINT_CLUSTER names a running cluster, and a machine holds one node at a time")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need the machine for a node of their own go first: the session's node stays until the end."""
    items.sort(key=lambda item: "fresh_machine" not in getattr(item, "fixturenames", ()))
