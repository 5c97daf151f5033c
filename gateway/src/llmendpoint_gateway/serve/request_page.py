"""What Envoy counted of requests, by endpoint: from its page of statistics to ours, `llmendpoint_gateway_*`.

With 1,000 endpoints these are 33,000 lines, and prometheus_client takes 10 µs for each. A thread would take the
interpreter from the decisions for 5 ms at a time. So the lines are rewritten, in pieces of less than a millisecond, and
requests are decided in between.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from llmendpoint_gateway.core.envoy.request_stats import (
    CLUSTER_TAG,
    ENDED,
    ENDPOINT_TAG,
    FIRST,
    STATS_PREFIX,
    STATUS_TAG,
    WHOLE,
)
from llmendpoint_gateway.core.placement.placement import Placement
from llmendpoint_gateway.errors import EnvoyAway
from llmendpoint_gateway.serve.envoy.envoy_stats import EnvoyStats
from llmendpoint_gateway.serve.metrics import OF_ENDPOINT, OF_REVISION, PREFIX
from llmendpoint_gateway.serve.registry_page import LINES, in_pieces

T = TypeVar("T")
Known = Mapping[str, Collection[str]]
"""Endpoint -> revisions. Envoy keeps what it counted for others, that are gone; it is left out."""


@dataclass(frozen=True, slots=True)
class Family:
    """`name` is without the `_total` of a counter."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str

    @property
    def heading(self) -> str:
        name = f"{self.name}_total" if self.kind == "counter" else self.name
        return f"# HELP {name} {self.text}\n# TYPE {name} {self.kind}\n"


REQUESTS = Family(
    f"{PREFIX}requests",
    "counter",
    (*OF_REVISION, "status"),
    "Requests that went to a replica and have ended, by the status of the answer",
)
TIMES = {
    FIRST: Family(
        f"{PREFIX}first_token_seconds",
        "histogram",
        OF_ENDPOINT,
        "Time from the last byte of a request to the first byte of its answer's body, of complete streams",
    ),
    WHOLE: Family(
        f"{PREFIX}request_seconds",
        "histogram",
        OF_ENDPOINT,
        "Time from the last byte of a request to the last byte of its answer, of complete answers",
    ),
}
_HEADING = re.compile(rf"# TYPE envoy_{STATS_PREFIX}_({FIRST}|{WHOLE}) ")
_COUNTER = re.compile(
    rf'envoy_{STATS_PREFIX}_{ENDED}{{{CLUSTER_TAG}="([^"]+)/([^"/]+)",{STATUS_TAG}="(\d+)"}} (\d+)'
)
_TIMES = re.compile(
    rf'envoy_{STATS_PREFIX}_({FIRST}|{WHOLE})_(bucket|sum|count){{{ENDPOINT_TAG}="([^"/]+)/([^"/]+)"(?:,le="([^"]+)")?}} (\S+)'
)


async def requests_page(envoy: EnvoyStats, placement: Placement) -> str:
    """Prometheus' text. Empty if Envoy does not answer."""
    try:
        text = await envoy.requests()
    except EnvoyAway:
        return ""
    return await in_pieces(pieces(text, known_revisions(placement)))


def known_revisions(placement: Placement) -> Known:
    """The revisions that have replicas, and the active one, which may have none."""
    return {
        key: {*placement.revisions(key), endpoint.active_revision or ""}
        for key, endpoint in placement.view.endpoints.items()
    }


def pieces(text: str, known: Known) -> Iterator[str]:
    """`text`: Envoy's /stats/prometheus. Names in it are those of Kubernetes objects, so none needs a backslash."""
    ended: dict[tuple[str, str, str], int] = {}
    for lines in _batches(text.splitlines()):
        yield "".join(_rewritten(lines, known, ended))
    yield REQUESTS.heading
    for items in _batches(ended.items()):
        yield "".join(_counter(*of, number) for of, number in items)


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while batch := list(islice(rest, LINES)):
        yield batch


def _rewritten(lines: Collection[str], known: Known, ended: dict[tuple[str, str, str], int]) -> Iterator[str]:
    """The histograms' lines. Counters are added to `ended`: endpoint, revision and class of status -> requests."""
    for line in lines:
        if match := _TIMES.match(line):
            name, part, namespace, endpoint, bound, value = match.groups()
            if f"{namespace}/{endpoint}" in known:
                yield _time(TIMES[name].name, part, namespace, endpoint, bound, value)
        elif match := _COUNTER.match(line):
            key, revision, status, value = match.groups()
            if revision in known.get(key, ()):
                of = key, revision, status_class(status)
                ended[of] = ended.get(of, 0) + int(value)
        elif match := _HEADING.match(line):
            yield TIMES[match[1]].heading


def _time(name: str, part: str, namespace: str, endpoint: str, bound: str | None, value: str) -> str:
    """Envoy's bounds and sums are in milliseconds. It estimates a sum from its buckets."""
    labels = f'namespace="{namespace}",llmendpoint="{endpoint}"'
    if part == "bucket":
        assert bound is not None
        seconds = bound if bound == "+Inf" else float(bound) / 1000
        return f'{name}_bucket{{{labels},le="{seconds}"}} {value}\n'
    return f"{name}_{part}{{{labels}}} {float(value) / 1000 if part == 'sum' else value}\n"


def _counter(key: str, revision: str, status: str, number: int) -> str:
    namespace, _, endpoint = key.partition("/")
    labels = f'namespace="{namespace}",llmendpoint="{endpoint}",revision="{revision}",status="{status}"'
    return f"{REQUESTS.name}_total{{{labels}}} {number}\n"


def status_class(status: str) -> str:
    """`none`: the caller left before an answer began."""
    return "none" if status == "0" else f"{status[0]}xx"
