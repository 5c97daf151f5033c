"""Whether a rollout waits for adapters: requests for them should find them on the new revision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from ...api import Adapter
from ..pods.manifests import Manifest
from ..pods.revision import Revision
from ..pods.state import is_ready, ready_since
from ..times import parse_time
from .moves import PodAdapters
from .reported import loadable

LONGEST_S = 120.0
"""Seconds after a pod is ready for which a rollout waits for its adapters. After that the gateway sends requests for an
adapter only to replicas that have it, so that a large or slow adapter delays no revision for long."""


def adapters_awaited(
    revision: Revision | None,
    adapters: Iterable[Adapter],
    pods: Iterable[Manifest],
    told: Mapping[str, PodAdapters],
    now: datetime,
) -> float:
    """Seconds to wait for ready pods of this revision that load adapters; 0: none is awaited."""
    wanted = loadable(revision, adapters)
    if not wanted:
        return 0.0
    unsettled = (
        pod for pod in pods
        if is_ready(pod) and not told.get(pod["metadata"]["name"], PodAdapters()).settled(wanted)
    )  # fmt: skip
    return max((_left(pod, now) for pod in unsettled), default=0.0)


def _left(pod: Manifest, now: datetime) -> float:
    since = parse_time(ready_since(pod))
    if since is None:
        return 0.0
    return max(0.0, (since + timedelta(seconds=LONGEST_S) - now).total_seconds())
