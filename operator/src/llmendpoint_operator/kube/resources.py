"""The kinds that the operator reads or writes, and the permissions that it needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind, and its place in the API."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True
    optional: bool = False
    """Whether the cluster may lack the kind."""

    @property
    def group(self) -> str:
        """API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """URL path of the collection, an object or its subresource."""
        parts = ["/apis" if self.group else "/api", self.api_version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        return "/".join(parts + [part for part in (name, subresource) if part])


ENDPOINTS = Resource("llmendpoint.io/v1alpha1", "LLMEndpoint", "llmendpoints")
RUNTIMES = Resource("llmendpoint.io/v1alpha1", "LLMRuntime", "llmruntimes", namespaced=False, optional=True)
DEPLOYMENTS = Resource("apps/v1", "Deployment", "deployments")
CONTROLLER_REVISIONS = Resource("apps/v1", "ControllerRevision", "controllerrevisions")
SERVICES = Resource("v1", "Service", "services")
SERVICE_ACCOUNTS = Resource("v1", "ServiceAccount", "serviceaccounts")
PODS = Resource("v1", "Pod", "pods")
DISRUPTION_BUDGETS = Resource("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICIES = Resource("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
JOBS = Resource("batch/v1", "Job", "jobs")
NODES = Resource("v1", "Node", "nodes", namespaced=False)
AUTOSCALERS = Resource("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
SCALED_OBJECTS = Resource("keda.sh/v1alpha1", "ScaledObject", "scaledobjects", optional=True)
EVENTS = Resource("v1", "Event", "events")
LEASES = Resource("coordination.k8s.io/v1", "Lease", "leases")

POLICIES = (DISRUPTION_BUDGETS, NETWORK_POLICIES)
SCALERS = (AUTOSCALERS, SCALED_OBJECTS)
CHILDREN = (
    DEPLOYMENTS, CONTROLLER_REVISIONS, SERVICES, SERVICE_ACCOUNTS, JOBS, *POLICIES, *SCALERS,
)  # fmt: skip
BY_KIND = {(resource.api_version, resource.kind): resource for resource in (*CHILDREN, PODS)}
"""Kinds that a plan's steps may be about. Of pods only annotations are written."""

PERMISSIONS: dict[tuple[str, str], frozenset[str]] = {
    ("llmendpoint.io", "llmendpoints"): frozenset({"list", "watch"}),
    ("llmendpoint.io", "llmendpoints/status"): frozenset({"update", "patch"}),
    ("llmendpoint.io", "llmendpoints/finalizers"): frozenset({"update"}),
    ("llmendpoint.io", "llmruntimes"): frozenset({"list", "watch"}),
    ("apps", "deployments"): frozenset({"list", "watch", "create", "patch", "delete"}),
    ("apps", "controllerrevisions"): frozenset({"list", "watch", "create", "patch", "delete"}),
    ("", "services"): frozenset({"list", "watch", "create", "patch", "delete"}),
    ("", "serviceaccounts"): frozenset({"list", "watch", "create", "patch"}),
    ("policy", "poddisruptionbudgets"): frozenset({"list", "watch", "create", "patch"}),
    ("networking.k8s.io", "networkpolicies"): frozenset({"list", "watch", "create", "patch"}),
    ("batch", "jobs"): frozenset({"list", "watch", "create", "patch", "delete"}),
    ("", "nodes"): frozenset({"list", "watch"}),
    ("autoscaling", "horizontalpodautoscalers"): frozenset({"list", "watch", "create", "patch", "delete"}),
    ("keda.sh", "scaledobjects"): frozenset({"list", "watch", "create", "patch", "delete"}),
    ("", "pods"): frozenset({"list", "watch", "patch"}),
    ("", "events"): frozenset({"create", "get", "list", "patch"}),
    ("coordination.k8s.io", "leases"): frozenset({"get", "create", "update"}),
}
"""Verbs by group and resource. Leases are needed in the operator's own namespace only. Runtimes and nodes are
cluster-wide; nodes are read only if all namespaces are served. The status has `patch` for the previous
version of the operator, which still leads when an upgrade begins. The finalizers entry is needed because
children are written with blockOwnerDeletion, which the admission plugin OwnerReferencesPermissionEnforcement
checks."""
