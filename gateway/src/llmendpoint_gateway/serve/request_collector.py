"""What Envoy counted of requests, by endpoint, as `llmendpoint_gateway_*`.

With 1,000 endpoints these are 30,000 lines. So they have a registry of their own, and a thread writes their page: the
event loop goes on deciding meanwhile.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from llmendpoint_gateway.core.envoy.request_figures import RequestFigures, Times, read_figures
from llmendpoint_gateway.core.placement.placement import Placement
from llmendpoint_gateway.errors import EnvoyAway
from llmendpoint_gateway.serve.envoy.envoy_stats import EnvoyStats
from llmendpoint_gateway.serve.metrics import OF_ENDPOINT, OF_REVISION, PREFIX


class RequestCollector(Collector):
    """Of what Envoy said last."""

    def __init__(self, figures: RequestFigures) -> None:
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        requests = CounterMetricFamily(
            f"{PREFIX}requests",
            "Requests that went to a replica and have ended, by the status of the answer",
            labels=(*OF_REVISION, "status"),
        )
        for (endpoint, revision, status), number in self._figures.ended.items():
            requests.add_metric([*endpoint.split("/"), revision, status], number)
        yield requests
        yield _histogram(
            "first_token_seconds",
            "Time from the last byte of a request to the first byte of its answer's body, of complete streams",
            self._figures.first,
        )
        yield _histogram(
            "request_seconds",
            "Time from the last byte of a request to the last byte of its answer, of complete answers",
            self._figures.whole,
        )


async def requests_page(envoy: EnvoyStats, placement: Placement) -> bytes:
    """Prometheus' text. Empty if Envoy does not answer."""
    known = known_revisions(placement)
    try:
        text = await envoy.requests()
    except EnvoyAway:
        return b""
    return await asyncio.to_thread(_page, text, known)


def known_revisions(placement: Placement) -> Mapping[str, Collection[str]]:
    """Endpoint -> its revisions that have replicas, and the active one, which may have none."""
    return {
        key: {*placement.revisions(key), endpoint.active_revision or ""}
        for key, endpoint in placement.view.endpoints.items()
    }


def _page(text: str, known: Mapping[str, Collection[str]]) -> bytes:
    registry = CollectorRegistry()
    registry.register(RequestCollector(read_figures(text, known)))
    return generate_latest(registry)


def _histogram(name: str, text: str, times: Mapping[str, Times]) -> Metric:
    family = HistogramMetricFamily(f"{PREFIX}{name}", text, labels=OF_ENDPOINT)
    for endpoint, found in times.items():
        family.add_metric(endpoint.split("/"), found.buckets, sum(found.total))
    return family
