"""docs/concepts/models.md: the branch of an `hf://` model moves, and the pods of a revision stay with its first commit.

On a real API server.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.hub_stub import MODEL, Hub
from tests.integration.installed import install
from tests.integration.namespace import Namespace
from tests.integration.operator_process import OperatorProcess

pytestmark = pytest.mark.integration
FIRST, SECOND = "1" * 40, "2" * 40


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    found = Hub({FIRST: tmp_path, SECOND: tmp_path}, main=FIRST)
    yield found
    found.close()


def commits(namespace: Namespace, revision: str, count: int) -> set[str]:
    """What `--revision` the pods of a revision were told, once there are so many."""
    namespace.pods(revision, count)
    select = ("-l", f"llmendpoint.io/revision={revision}")
    pods = namespace.get("pods", *select)["items"]
    args = [argument for pod in pods for argument in pod["spec"]["containers"][0]["args"]]
    return {argument.removeprefix("--revision=") for argument in args if argument.startswith("--revision=")}


def test_a_branch_that_moves_between_two_pods_moves_no_revision(control_plane: Cluster, hub: Hub) -> None:
    install(control_plane)
    namespace = Namespace(control_plane)
    with OperatorProcess(control_plane, "--hub-endpoint", hub.url):
        hub.down = True
        namespace.apply(model={"source": f"hf://{MODEL}"})
        asked = namespace.wait_condition("Ready", "False", "ModelNotResolved")
        assert "503" in asked["message"]
        assert namespace.items("deployments") == []
        hub.down = False
        revision = namespace.bring_up(1)
        assert commits(namespace, revision, 1) == {FIRST}
        hub.main = SECOND
        namespace.apply(model={"source": f"hf://{MODEL}"}, replicas=2)
        assert commits(namespace, revision, 2) == {FIRST}
    with OperatorProcess(control_plane, "--hub-endpoint", hub.url) as operator:
        operator.settle()
        assert commits(namespace, revision, 2) == {FIRST}
        namespace.apply(model={"source": f"hf://{MODEL}"}, engine={"maxNumSeqs": 8})
        newer = namespace.target()
        assert commits(namespace, newer, 1) == {SECOND}
