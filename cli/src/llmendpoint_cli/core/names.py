"""Names as docs/contribute/contracts.md defines them, and the states of a rollout."""

from __future__ import annotations

ENDPOINT_LABEL = "llmendpoint.io/endpoint"
REVISION_LABEL = "llmendpoint.io/revision"
REQUEST_ANNOTATION = "llmendpoint.io/request"

GATEWAY_SELECTOR = "app.kubernetes.io/name=llmendpoint-gateway,app.kubernetes.io/component=gateway"
GATEWAY_PORT = 8081

GROUP_PATH = "/apis/llmendpoint.io/v1alpha1"

IDLE = "Idle"
WAITING = "AwaitingPromotion"
OBSERVING = "Observing"
ROLLING_BACK = "RollingBack"
ROLLED_BACK = "RolledBack"
RESTING = frozenset({IDLE, ROLLED_BACK})
"""States in which no rollout is under way."""
STARTING = "Starting"
"""The reason of Ready while nothing is wrong: the replicas load the model."""
