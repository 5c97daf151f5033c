"""Counts of attempts by revision, read from Envoy's statistics."""

from collections.abc import Iterable, Mapping
from typing import Any

from llmendpoint_gateway.core.envoy.upstream_logs import CLUSTER_TAG, ENDED, FAILED, STATS_PREFIX


def stats_pattern(endpoint: str) -> str:
    """The regular expression (RE2) that matches the counters of one endpoint's revisions."""
    escaped = "".join(c if c.isalnum() or c in "/-" else f"\\{c}" for c in endpoint)
    return rf"^{STATS_PREFIX}\.({ENDED}|{FAILED})\.{CLUSTER_TAG}\.{escaped}/"


def read_attempts(
    document: Mapping[str, Any], endpoint: str, known: Iterable[str]
) -> dict[str, dict[str, int]]:
    """`document`: Envoy's /stats as JSON. Returns revision -> {"requests", "errors"}; each `known` revision has at
    least zeros."""
    counts = {revision: {"requests": 0, "errors": 0} for revision in known}
    for field, name in (("requests", ENDED), ("errors", FAILED)):
        prefix = f"{STATS_PREFIX}.{name}.{CLUSTER_TAG}.{endpoint}/"
        for stat in document.get("stats", ()):
            if stat.get("name", "").startswith(prefix):
                revision = stat["name"].removeprefix(prefix)
                counts.setdefault(revision, {"requests": 0, "errors": 0})[field] = stat["value"]
    return counts
