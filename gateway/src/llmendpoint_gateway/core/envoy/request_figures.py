"""Figures of whole requests, read from Envoy's statistics (core/envoy/request_stats.py)."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from llmendpoint_gateway.core.envoy.request_stats import (
    CLUSTER_TAG,
    ENDED,
    ENDPOINT_TAG,
    FIRST,
    STATS_PREFIX,
    STATUS_TAG,
    WHOLE,
)

STATS_PATTERN = rf"^{STATS_PREFIX}\."
"""The regular expression (RE2) that matches them all."""

_COUNTER = re.compile(
    rf'^envoy_{STATS_PREFIX}_{ENDED}{{{CLUSTER_TAG}="([^"]+)/([^"/]+)",{STATUS_TAG}="(\d+)"}} (\d+)$', re.M
)
_TIMES = re.compile(
    rf'^envoy_{STATS_PREFIX}_({FIRST}|{WHOLE})_(bucket|sum){{{ENDPOINT_TAG}="([^"]+)"(?:,le="([^"]+)")?}} (\S+)$',
    re.M,
)


@dataclass(frozen=True, slots=True)
class Times:
    """A histogram. `buckets`: upper bound in seconds as Prometheus writes it, and how many were at most that; the last
    bound is `+Inf`. `total`: the sum in seconds, which Envoy estimates from its buckets."""

    buckets: list[tuple[str, float]] = field(default_factory=list)
    total: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RequestFigures:
    """`ended`: endpoint, revision and class of status -> requests. `first` and `whole`: endpoint -> seconds to the first
    token, and to the end."""

    ended: dict[tuple[str, str, str], int] = field(default_factory=dict)
    first: dict[str, Times] = field(default_factory=dict)
    whole: dict[str, Times] = field(default_factory=dict)


def read_figures(text: str, known: Mapping[str, Collection[str]]) -> RequestFigures:
    """`text`: Envoy's /stats/prometheus. `known`: endpoint -> revisions. Envoy keeps what it counted for others, that are
    gone; it is left out."""
    figures = RequestFigures()
    for endpoint, revision, status, value in _COUNTER.findall(text):
        if revision in known.get(endpoint, ()):
            key = endpoint, revision, status_class(status)
            figures.ended[key] = figures.ended.get(key, 0) + int(value)
    for name, part, endpoint, bound, value in _times(text):
        if endpoint not in known:
            continue
        found = (figures.first if name == FIRST else figures.whole).setdefault(endpoint, Times())
        if part == "sum":
            found.total.append(float(value) / 1000)
        else:
            found.buckets.append((_seconds(bound), float(value)))
    return figures


def status_class(status: str) -> str:
    """`none`: the caller left before an answer began."""
    return "none" if status == "0" else f"{status[0]}xx"


def _times(text: str) -> Iterator[tuple[str, str, str, str, str]]:
    return (match.groups() for match in _TIMES.finditer(text))  # type: ignore[misc]  # five groups, as the pattern has


def _seconds(milliseconds: str) -> str:
    return milliseconds if milliseconds == "+Inf" else str(float(milliseconds) / 1000)
