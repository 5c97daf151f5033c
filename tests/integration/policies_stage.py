"""Who writes what where the chart's policies are enforced: a tenant, and the operator's own token. By impersonation."""

from __future__ import annotations

import json
from typing import Any

import httpx
import yaml

from tests.cluster import Cluster
from tests.cluster.api import client_context
from tests.cluster.errors import CommandFailed
from tests.demo.product import CHART

SYSTEM = "llm-policies"
TENANT = "tenant-a"
ALICE = "--as=alice"
"""May edit LLMEndpoints of her namespace, and nothing else."""

OPERATOR = f"--as=system:serviceaccount:{SYSTEM}:llmendpoint-operator"

VALUES: dict[str, Any] = {
    "runtime": {"install": False},
    "hub": {"endpoint": "https://hub.example.com", "allowed": ["https://s3.example.com/"]},
    "judge": {"allowedHosts": ["judge.example.com"], "allowedNamespaces": ["platform"]},
    "policies": {
        "mode": "enforce",
        "namespaceSelector": {"matchLabels": {"policies": "yes"}},
        "allowed": {
            "runtimes": ["llmendpoint", "team-a-*"],
            "images": ["registry.example.com/llm/*"],
            "args": ["--max-num-batched-tokens=*"],
            "env": ["AWS_REGION", "OMP_*"],
            "claims": ["models"],
            "secrets": ["hub-token"],
            "tolerations": ["nvidia.com/gpu"],
        },
    },
}


def helm_values(cluster: Cluster, values: dict[str, Any]) -> None:
    words = [w for key, value in values.items() for w in ("--set-json", f"{key}={json.dumps(value)}")]
    cluster.helm("upgrade", "--install", "policies", str(CHART), "-n", SYSTEM, "--create-namespace", *words)


def endpoint(name: str = "chat", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "llmendpoint.io/v1alpha1",
        "kind": "LLMEndpoint",
        "metadata": {"name": name, "namespace": TENANT},
        "spec": {"model": {"source": "hf://acme/demo"}, **spec},
    }


def refusal(cluster: Cluster, manifest: dict[str, Any] | None = None, **runtime: Any) -> str:
    """What Alice is told; empty where the API server would take it."""
    text = yaml.safe_dump(manifest or endpoint(runtime=runtime))
    try:
        cluster.kubectl("create", "--dry-run=server", ALICE, "-f", "-", stdin=text)
    except CommandFailed as refused:
        return refused.output
    return ""


def env(name: str, value: str) -> dict[str, Any]:
    return {"runtime": {"env": [{"name": name, "value": value}]}}


def judged(judge: str) -> dict[str, Any]:
    prompt = {"name": "p", "prompt": "?", "compare": {"mode": "Judge", "endpoint": judge}}
    return {"rollout": {"verification": {"prompts": [prompt]}}}


def model(source: str = "hf://acme/demo", **fields: Any) -> dict[str, Any]:
    return {"model": {"source": source, **fields}}


def adapters(*sources: str) -> dict[str, Any]:
    return {"adapters": [{"name": f"a{number}", "source": source} for number, source in enumerate(sources)]}


LABELS = {"app.kubernetes.io/managed-by": "llmendpoint-operator", "llmendpoint.io/endpoint": "chat"}


def service(name: str, labels: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": TENANT, "labels": labels}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]}}


def deployment(pod: dict[str, Any], container: dict[str, Any]) -> dict[str, Any]:
    good = {"allowPrivilegeEscalation": False}
    containers = [{"name": "engine", "image": "i", "securityContext": good, **container}]
    template = {
        "metadata": {"labels": LABELS},
        "spec": {"automountServiceAccountToken": False, "serviceAccountName": "chat", "containers": containers, **pod},
    }  # fmt: skip
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat-1", "namespace": TENANT, "labels": LABELS},
        "spec": {"replicas": 0, "selector": {"matchLabels": LABELS}, "template": template},
    }


def allowed(cluster: Cluster, manifest: dict[str, Any]) -> bool:
    """Whether the operator's token is good for it."""
    words = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", OPERATOR, "-f", "-")
    try:
        cluster.kubectl(*words, stdin=yaml.safe_dump(manifest))
    except CommandFailed as refused:
        if "ValidatingAdmissionPolicy" not in refused.output:
            raise
        return False
    return True


def patch(cluster: Cluster, pod: str, change: dict[str, Any]) -> str:
    """What the API server refuses it with; kubectl would read the pod first, which the operator may not."""
    own = cluster.own
    answer = httpx.patch(
        f"{own.api_url}/api/v1/namespaces/{TENANT}/pods/{pod}",
        content=json.dumps(change),
        headers={
            "Content-Type": "application/strategic-merge-patch+json",
            "Impersonate-User": OPERATOR.removeprefix("--as="),
        },
        verify=client_context(own.pki),
    )
    return "" if answer.is_success else answer.text
