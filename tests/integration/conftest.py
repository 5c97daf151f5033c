"""What several modules here begin with: the CRDs and a runtime, an operator, a namespace, a stage for rollouts."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.cluster import Cluster
from tests.integration.installed import install
from tests.integration.namespace import Namespace
from tests.integration.operator_process import OperatorProcess
from tests.integration.rollout_stage import Stages, open_stages


@pytest.fixture(scope="module")
def prepared(control_plane: Cluster) -> Cluster:
    """The control plane with what an operator needs."""
    install(control_plane)
    return control_plane


@pytest.fixture(scope="module")
def operator(prepared: Cluster) -> Iterator[OperatorProcess]:
    """A running operator for all tests of a module."""
    with OperatorProcess(prepared) as process:
        yield process


@pytest.fixture
def namespace(prepared: Cluster) -> Iterator[Namespace]:
    """A namespace for one test."""
    found = Namespace(prepared)
    yield found
    prepared.kubectl("delete", "namespace", found.name, "--wait=false")


@pytest.fixture
async def stages(prepared: Cluster) -> AsyncIterator[Stages]:
    """Where a test plays the kubelet, the engines, the gateways and their callers."""
    async with open_stages(prepared) as found:
        yield found
