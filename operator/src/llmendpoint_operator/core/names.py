"""Names, labels and ports, as docs/contribute/contracts.md specifies them."""

from __future__ import annotations

MANAGER = "llmendpoint-operator"
"""The operator's field manager, Lease name and Event source."""

Key = tuple[str, str]
"""Namespace (empty for cluster-wide kinds) and name of an object."""

ENDPOINT_LABEL = "llmendpoint.io/endpoint"
REVISION_LABEL = "llmendpoint.io/revision"
MODEL_JOB_LABEL = "llmendpoint.io/model-job"
"""On Jobs that resolve, download or delete models, and on their pods. The value is the Job's name."""
NO_REVISION = "none"
"""The revision that the plain Service selects before any revision was ready. It matches no pod."""

CONTAINER = "engine"
PROBE_CONTAINER = "probe"
PORT_NAME = "http"
PRE_STOP_SECONDS = 5
DRAIN_MARGIN_SECONDS = 5
USER = 65532


def child_name(endpoint: str, revision: str) -> str:
    """Name of a revision's ControllerRevision, Deployment and headless Service."""
    return f"{endpoint}-{revision}"


def labels(endpoint: str, revision: str | None = None) -> dict[str, str]:
    """Labels of a child. `revision` is None on objects that all revisions share."""
    found = {
        "app.kubernetes.io/name": "llmendpoint",
        "app.kubernetes.io/instance": endpoint,
        "app.kubernetes.io/component": "engine",
        "app.kubernetes.io/managed-by": MANAGER,
        ENDPOINT_LABEL: endpoint,
    }
    if revision is not None:
        found[REVISION_LABEL] = revision
    return found


def pod_selector(endpoint: str, revision: str) -> dict[str, str]:
    """Labels that select the pods of one revision."""
    return {ENDPOINT_LABEL: endpoint, REVISION_LABEL: revision}


def selector_text(endpoint: str, revision: str) -> str:
    """The same selector as text, for `status.selector`."""
    return ",".join(f"{key}={value}" for key, value in pod_selector(endpoint, revision).items())
