"""Nodes that kwok plays: any number of pods on them become Ready at once, and nothing runs.

The pods get no address, so that nobody sends anything to one that belongs to somebody else.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.api import Cluster
from tests.cluster.binaries import build_kwok
from tests.cluster.errors import ClusterError

LABEL = "llmendpoint.io/fake"

NODE_STATUS = """
allocatable: {cpu: 10k, memory: 100Ti, pods: 100k}
capacity: {cpu: 10k, memory: 100Ti, pods: 100k}
phase: Running
conditions:
- {type: Ready, status: "True", reason: KubeletReady, message: played by kwok, lastHeartbeatTime: {{ Now | Quote }}, lastTransitionTime: {{ Now | Quote }}}
"""
POD_STATUS = """
phase: Running
startTime: {{ Now | Quote }}
conditions:
- {type: Initialized, status: "True", lastTransitionTime: {{ Now | Quote }}}
- {type: ContainersReady, status: "True", lastTransitionTime: {{ Now | Quote }}}
- {type: Ready, status: "True", lastTransitionTime: {{ Now | Quote }}}
"""


def _stage(kind: str, name: str, matches: list[dict[str, Any]], following: dict[str, Any]) -> dict[str, Any]:
    """What happens to a fake node, or to a pod on one, that matches."""
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": f"{kind.lower()}-{name}"},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": matches},
            "next": following,
        },
    }


STAGES = (
    _stage(
        "Node",
        "ready",
        [{"key": ".status.phase", "operator": "NotIn", "values": ["Running"]}],
        {"statusTemplate": NODE_STATUS},
    ),
    _stage(
        "Pod",
        "ready",
        [{"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}, {"key": ".status.phase", "operator": "In", "values": ["Pending"]}],
        {"statusTemplate": POD_STATUS},
    ),
    _stage(
        "Pod",
        "gone",
        [{"key": ".metadata.deletionTimestamp", "operator": "Exists"}],
        {"finalizers": {"empty": True}, "delete": True},
    ),
)  # fmt: skip


@contextmanager
def fake_nodes(cluster: Cluster, count: int = 1) -> Iterator[None]:
    """So many nodes while the context is open. Raises ClusterError when they do not come up."""
    names = [f"fake-{number}" for number in range(count)]
    for name in names:
        metadata = {"name": name, "labels": {LABEL: "true"}}
        cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    with tempfile.TemporaryDirectory(prefix="kwok-") as folder:
        stages, log = Path(folder, "stages.yaml"), Path(folder, "log")
        stages.write_text(yaml.safe_dump_all(STAGES))
        command = [
            str(build_kwok()), "--kubeconfig", str(cluster.kubeconfig), "--config", str(stages),
            "--manage-all-nodes=false", f"--manage-nodes-with-label-selector={LABEL}=true",
            "--node-lease-duration-seconds=40",
        ]  # fmt: skip
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            _wait_ready(cluster, names, process, log)
            yield
        finally:
            process.terminate()
            process.wait(30)
            for name in names:
                cluster.kubectl("delete", "node", name, "--wait=false")


def _wait_ready(cluster: Cluster, names: list[str], process: subprocess.Popen[bytes], log: Path) -> None:
    def ready() -> bool:
        if process.poll() is not None:
            return True
        nodes = [cluster.get("node", name) for name in names]
        return all(
            any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", ()))
            for node in nodes
        )

    cluster.wait_for(f"{len(names)} fake nodes to be ready", ready, 60)
    if process.poll() is not None:
        raise ClusterError(f"kwok ended with {process.returncode}:\n{log.read_text()[-3000:]}")
