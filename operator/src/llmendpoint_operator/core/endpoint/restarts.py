"""Engines that end again and again and are ready in between. Each single look at them finds nothing wrong,
but their callers lose requests.

A pod that never becomes ready has a cause already (causes.py). Messages contain no counts, because counts
change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from ..pods.manifests import Manifest
from ..pods.state import engine_ended, engine_status, is_alive, is_ready, served_until
from ..times import parse_time
from .causes import Cause, engine_exited

RESTARTS = 3
WINDOW = timedelta(minutes=10)
"""As in the kubelet, which resets a container's back-off after it ran this long."""


def find_storm(pods: Sequence[Manifest], now: datetime) -> Cause | None:
    """The cause for the first pod in a restart storm: RESTARTS or more restarts, with both its last run and
    the time since then shorter than WINDOW."""
    for pod, _ in _storms(pods, now):
        ended = engine_exited(pod)
        if ended is not None and not ended.permanent:
            said = f"{ended.message}. It became ready and ended again {RESTARTS} times or more"
            hint = "`kubectl logs --previous` shows its last output; each time its requests are lost"
            return Cause("RestartStorm", f"{said}; {hint}")
    return None


def calm_after(pods: Iterable[Manifest], now: datetime) -> float | None:
    """Seconds until the first storm is over if no engine ends again; None without a storm."""
    return min(((end - now).total_seconds() for _, end in _storms(pods, now)), default=None)


def _storms(pods: Iterable[Manifest], now: datetime) -> Iterator[tuple[Manifest, datetime]]:
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"])):
        engine, last = engine_status(pod), engine_ended(pod)
        began, ended = parse_time(last.get("startedAt")), parse_time(last.get("finishedAt"))
        if (
            not is_alive(pod)
            or int(engine.get("restartCount", 0)) < RESTARTS
            or began is None
            or ended is None
        ):
            continue
        served = is_ready(pod) or served_until(pod) is not None
        if served and ended - began < WINDOW and now < ended + WINDOW:
            yield pod, ended + WINDOW
