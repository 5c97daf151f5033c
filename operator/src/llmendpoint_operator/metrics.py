"""Prometheus metrics of the operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .core.names import Key
from .core.scaling.providers import ENDPOINT_NAME, RECOMMENDED_METRIC

disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations


class Metrics:
    """One set on a registry of its own, so that tests may make several."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter, gauge = self._counter, self._gauge
        self.reconciles = counter("llmendpoint_operator_reconciles", "Reconciles by result", "result")
        self.reconcile_seconds = Histogram(
            "llmendpoint_operator_reconcile_seconds",
            "Time of one reconcile, its writes included",
            registry=self.registry,
        )
        self.queue_depth = gauge("llmendpoint_operator_queue_depth", "Endpoints waiting to be reconciled")
        self.writes = counter(
            "llmendpoint_operator_writes", "Writes to the API server, Events and the Lease not counted", "kind", "verb"
        )  # fmt: skip
        self.write_errors = counter(
            "llmendpoint_operator_write_errors",
            "Writes that the API server refused or failed",
            "kind",
            "code",
        )
        self.watch_staleness = gauge(
            "llmendpoint_operator_watch_staleness_seconds", "Time since the API server was last heard of", "resource"
        )  # fmt: skip
        self.objects = gauge("llmendpoint_operator_cached_objects", "Objects in the caches", "resource")
        self.evidence_calls = counter(
            "llmendpoint_operator_evidence_calls", "Questions to gateways and engines during rollouts", "kind", "result"
        )  # fmt: skip
        self.watched = gauge(
            "llmendpoint_operator_rollouts_watched", "Endpoints whose gateways or engines are being asked"
        )
        self.scalings = counter(
            "llmendpoint_operator_scalings", "Changes of the number of replicas by the builtin scaler",
            "direction", "reason",
        )  # fmt: skip
        self.demand_streams = gauge(
            "llmendpoint_operator_demand_streams", "Gateways that tell load and demand"
        )
        self.circuits_open = gauge(
            "llmendpoint_operator_circuits_open", "Endpoints whose requests a gateway refuses because too many failed"
        )  # fmt: skip
        self.leader = gauge("llmendpoint_operator_leader", "1 while this process holds the lease")

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(name, what, labels, registry=self.registry)

    def _gauge(self, name: str, what: str, *labels: str) -> Gauge:
        return Gauge(name, what, labels, registry=self.registry)


class Recommendations(Collector):
    """How many replicas there is work for, where a HorizontalPodAutoscaler asks: read when the page is. An endpoint of
    which nothing is known is not there."""

    def __init__(self, read: Callable[[], Iterable[tuple[Key, int]]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """As prometheus_client asks for it."""
        found = GaugeMetricFamily(
            RECOMMENDED_METRIC,
            "Replicas that the load of an endpoint with autoscaling.provider hpa asks for, bounds not applied",
            labels=["namespace", ENDPOINT_NAME],
        )
        for key, replicas in self._read():
            found.add_metric(key, replicas)
        yield found
