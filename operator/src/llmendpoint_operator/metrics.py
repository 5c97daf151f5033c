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
    """All metrics, on a registry of their own so that tests can create several sets."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter, gauge = self._counter, self._gauge
        self.reconciles = counter("llmendpoint_operator_reconciles", "Reconciliations of endpoints", "result")
        self.reconcile_seconds = Histogram(
            "llmendpoint_operator_reconcile_seconds",
            "Time of one reconciliation, with its writes",
            registry=self.registry,
        )
        self.queue_depth = gauge("llmendpoint_operator_queue_depth", "Endpoints that wait to be reconciled")
        self.writes = counter(
            "llmendpoint_operator_writes", "Writes to the API server, without Events and the Lease", "kind", "verb"
        )  # fmt: skip
        self.write_errors = counter(
            "llmendpoint_operator_write_errors",
            "Writes that the API server did not accept",
            "kind",
            "code",
        )
        self.watch_staleness = gauge(
            "llmendpoint_operator_watch_staleness_seconds", "Time since the operator last heard from the API server", "resource"
        )  # fmt: skip
        self.objects = gauge(
            "llmendpoint_operator_cached_objects", "Objects in the operator's caches", "resource"
        )
        self.evidence_calls = counter(
            "llmendpoint_operator_evidence_calls", "Requests of the operator to gateways, engines and judges", "kind", "result"
        )  # fmt: skip
        self.watched = gauge(
            "llmendpoint_operator_rollouts_watched",
            "Endpoints about whose rollout the operator asks gateways or engines",
        )
        self.scalings = counter(
            "llmendpoint_operator_scalings", "Changes of a number of replicas by the builtin autoscaler",
            "direction", "reason",
        )  # fmt: skip
        self.demand_streams = gauge(
            "llmendpoint_operator_demand_streams",
            "Gateways that report their load and demand to the operator",
        )
        self.circuits_open = gauge(
            "llmendpoint_operator_circuits_open", "Endpoints for which a gateway refuses requests because too many failed"
        )  # fmt: skip
        self.leads = False
        self.leader = gauge("llmendpoint_operator_leader", "1 while this process holds the Lease")

    def lead(self) -> None:
        """This process has got the Lease, and keeps it until it ends."""
        self.leads = True
        self.leader.set(1)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(name, what, labels, registry=self.registry)

    def _gauge(self, name: str, what: str, *labels: str) -> Gauge:
        return Gauge(name, what, labels, registry=self.registry)


class Recommendations(Collector):
    """The number of replicas that the load needs, for HorizontalPodAutoscalers. It is computed at each
    scrape. An endpoint whose load is unknown is left out."""

    def __init__(self, read: Callable[[], Iterable[tuple[Key, int]]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """Called by prometheus_client at each scrape."""
        found = GaugeMetricFamily(
            RECOMMENDED_METRIC,
            "Replicas that the load needs, before minReplicas and maxReplicas (provider hpa only)",
            labels=["namespace", ENDPOINT_NAME],
        )
        for key, replicas in self._read():
            found.add_metric(key, replicas)
        yield found
