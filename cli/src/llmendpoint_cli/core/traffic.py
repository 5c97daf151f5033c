"""What callers send to an endpoint: two readings of the gateways' counters, some seconds apart."""

from __future__ import annotations

from collections.abc import Mapping

from .objects import Object
from .rollout_plan import Traffic


def traffic_between(
    before: Mapping[str, Object], after: Mapping[str, Object], seconds: float, active: str | None
) -> Traffic:
    """`before`, `after`: the `/revisions` of each gateway. The requests of all revisions in these seconds; the share of errors of
    the active revision (None: of all) since the gateways started, because few errors come in a few seconds."""
    came = 0.0
    for gateway, page in after.items():
        earlier = before.get(gateway)
        if earlier is None:
            continue
        start = _counted(earlier)[0] if earlier.get("instance") == page.get("instance") else 0.0
        came += max(0.0, _counted(page)[0] - start)
    told = [_counted(page, active) for page in after.values()]
    requests, errors = sum(r for r, _ in told), sum(e for _, e in told)
    return Traffic(came / seconds, errors / requests if requests > 0 else 0.0)


def _counted(page: Object, revision: str | None = None) -> tuple[float, float]:
    """Requests and errors, of one revision or of all."""
    found: Mapping[str, Object] = page.get("revisions") or {}
    counts = [count for name, count in found.items() if revision in (None, name)]
    return sum(float(c["requests"]) for c in counts), sum(float(c["errors"]) for c in counts)
