"""A gateway's counters of one endpoint, from its `/revisions` (docs/contribute/contracts.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core.endpoint.reported import parse_figure
from ..core.rollout.by_replica import MOST_REPLICAS
from ..core.rollout.measurements import ByPod, Counts
from ..errors import Unanswered

LONGEST_NAME = 253
"""Of a pod, in Kubernetes: it comes to stand in the status."""


@dataclass(frozen=True, slots=True)
class Counters:
    """`counts` by revision, which began anew with `instance`; `replicas` by revision and pod, which began anew with
    `picker`. A gateway that does not count by pod has none of these."""

    instance: str
    counts: Mapping[str, Counts]
    picker: str = ""
    replicas: ByPod | None = None


def parse_counters(page: Any) -> Counters:
    """At most MOST_REPLICAS of each revision, the same ones every time. Raises Unanswered where it is none."""
    try:
        revisions: Mapping[str, Any] = page["revisions"]
        counts = {str(revision): _counts(found) for revision, found in revisions.items()}
        picker = str(page.get("picker") or "")
        replicas = {
            str(revision): _by_pod(found.get("replicas") or {}) for revision, found in revisions.items()
        }
        return Counters(str(page["instance"]), counts, picker, replicas if picker else None)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unanswered(f"/revisions is not as expected: {error!r}") from error


def _by_pod(found: Mapping[str, Any]) -> dict[str, Counts]:
    if any(len(pod) > LONGEST_NAME for pod in found):
        raise ValueError(f"a pod's name has at most {LONGEST_NAME} characters")
    return {pod: _counts(found[pod]) for pod in sorted(found)[:MOST_REPLICAS]}


def _counts(found: Mapping[str, Any]) -> Counts:
    return Counts(parse_figure(found["requests"]), parse_figure(found["errors"]))
