"""What the test of a guide writes in place of what a user has. Each row says why; a row that no page needs is an error. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tests.guides.page import Commands, File, Page

SIMULATOR = "{name: simulator, args: [--load-time=0, --ttft=0.02, --itl=0.002]}"


@dataclass(frozen=True)
class Instead:
    """`says` is in a page's files or commands; the test has `runs` there, in which `{NAME}` is a value of the test's."""

    page: str
    says: str
    runs: str
    why: str


NO_REGISTRY = "there is no docker and no registry; the test's chart has the simulator, from an image that the test builds"
NO_KEDA = "KEDA is not in the test's cluster; the chart is rendered, and the API server checks the manifest"
SMALL = "the machine has less memory, and the simulator needs next to none"

TABLE: tuple[Instead, ...] = (
    Instead("cache", "memory: 32Gi", "memory: 256Mi", SMALL),
    Instead("s3", "memory: 32Gi", "memory: 256Mi", SMALL),
    Instead("call-it", "8080:80", "{port}:80", "another program may have the port 8080"),
    Instead(
        "call-it",
        "GATEWAY=127.0.0.1:8080",
        "GATEWAY=127.0.0.1:{port}",
        "another program may have the port 8080",
    ),
    Instead(
        "scale",
        "--ttft=0.02, --itl=0.002",
        "--ttft=0.05, --itl=0.02, --output-tokens=20",
        "requests must take as long as those of a model, or none waits",
    ),
    Instead(
        "keda",
        "helm upgrade llmendpoint charts/llmendpoint --namespace llmendpoint-system --reuse-values",
        "helm template llmendpoint charts/llmendpoint --namespace llmendpoint-system",
        NO_KEDA,
    ),
    Instead(
        "keda",
        "kubectl get clustertriggerauthentications",
        "helm template llmendpoint charts/llmendpoint --namespace llmendpoint-system --set keda.enabled=true"
        " | grep 'kind: ClusterTriggerAuthentication'",
        NO_KEDA,
    ),
    Instead("keda", "kubectl apply -f driven.yaml", "kubectl apply --dry-run=server -f driven.yaml", NO_KEDA),
    Instead("keda", "kubectl wait --for=create scaledobject/driven --timeout=60s", "true", NO_KEDA),
    Instead("keda", "kubectl get scaledobject driven", "true", NO_KEDA),
    Instead("keda", "kubectl get llmendpoint driven", "true", NO_KEDA),
    Instead("keda", "kubectl delete llmendpoint driven", "true", NO_KEDA),
    Instead(
        "other-engine",
        "kubectl llm scale big --replicas 1 --wait --timeout 1800",
        "true",
        "there is no image of vLLM and no GPU; the arguments of its pods are compared",
    ),
    Instead(
        "gitops",
        "kubectl -n argocd patch",
        "kubectl create configmap argocd-cm && kubectl patch",
        "Argo CD is not in the test's cluster; the API server takes the patch",
    ),
    Instead("rehearsal", "docker build", "true", NO_REGISTRY),
    Instead("rehearsal", "docker push", "true", NO_REGISTRY),
    Instead("rehearsal", "helm upgrade", "true", NO_REGISTRY),
)

SIMULATED = Instead(
    "*",
    "\nspec:\n  model:",
    f"\nspec:\n  runtime: {SIMULATOR}\n  model:",
    "endpoints of the bundled engine run on the simulator, which is the same API without torch: a start takes a second",
)


def rows(page: str) -> tuple[Instead, ...]:
    return (SIMULATED, *(row for row in TABLE if row.page == page))


def applied(page: Page, values: Mapping[str, str]) -> Page:
    """The page as the test runs it. Raises LookupError for a row whose text the page does not have."""
    steps = page.steps
    for row in rows(page.name):
        runs = row.runs
        for name, value in values.items():
            runs = runs.replace(f"{{{name}}}", value)
        changed = tuple(_replaced(step, row.says, runs) for step in steps)
        if changed == steps and row.page != "*":
            raise LookupError(
                f"{row.page}.md does not say {row.says!r} any more: take the row out of tests/guides"
            )
        steps = changed
    return replace(page, steps=steps)


def _replaced(step: File | Commands, says: str, runs: str) -> File | Commands:
    if isinstance(step, File):
        return replace(step, content=step.content.replace(says, runs))
    return replace(step, text=step.text.replace(says, runs))
