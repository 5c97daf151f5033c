"""What an operator needs in a cluster, and a manifest of a user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.cluster import Cluster

ROOT = Path(__file__).parents[2]
RUNTIME = "integration"
"""A runtime of our own, so that the chart's tests may install theirs in the same cluster."""


def install(cluster: Cluster) -> None:
    """The definitions, and a runtime like the bundled one."""
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        cluster.apply(yaml.safe_load(path.read_text()))
    cluster.kubectl(
        "wait",
        "--for=condition=Established",
        "crd",
        "llmendpoints.llmendpoint.io",
        "llmruntimes.llmendpoint.io",
        "llmkeys.llmendpoint.io",
    )
    runtime = yaml.safe_load((ROOT / "charts/llmendpoint/runtimes/llmendpoint.yaml").read_text())
    runtime["metadata"]["name"] = RUNTIME
    runtime["spec"]["image"] = "localhost/engine:1"
    cluster.apply(runtime)


def endpoint(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    """A manifest with the demo model; fields of the spec may be given."""
    whole = {
        "model": {"source": "embedded://demo"},
        "runtime": {"name": RUNTIME},
        "rollout": {"scaleDownDelay": 0},
        **spec,
    }
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "llmendpoint.io/v1alpha1",
        "kind": "LLMEndpoint",
        "metadata": metadata,
        "spec": whole,
    }
