"""Names as docs/contracts.md gives them, and the states of a rollout."""

from __future__ import annotations

ENDPOINT_LABEL = "llmendpoint.io/endpoint"
REVISION_LABEL = "llmendpoint.io/revision"
REQUEST_ANNOTATION = "llmendpoint.io/request"

GROUP_PATH = "/apis/llmendpoint.io/v1alpha1"

IDLE = "Idle"
WAITING = "AwaitingPromotion"
OBSERVING = "Observing"
ROLLING_BACK = "RollingBack"
ROLLED_BACK = "RolledBack"
RESTING = frozenset({IDLE, ROLLED_BACK})
"""States in which no rollout is under way."""
