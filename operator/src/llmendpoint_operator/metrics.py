"""Prometheus metrics of the operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .core.providers import ENDPOINT_NAME, RECOMMENDED_METRIC

disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations


class Metrics:
    """One set on a registry of its own, so that tests may make several."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconciles = Counter(
            "llmendpoint_operator_reconciles", "Reconciles by result", ["result"], registry=self.registry
        )
        self.reconcile_seconds = Histogram(
            "llmendpoint_operator_reconcile_seconds",
            "Time of one reconcile, its writes included",
            registry=self.registry,
        )
        self.writes = Counter(
            "llmendpoint_operator_writes", "Writes to the API server, Events and the Lease not counted",
            ["kind", "verb"], registry=self.registry,
        )  # fmt: skip
        self.write_errors = Counter(
            "llmendpoint_operator_write_errors",
            "Writes that the API server refused or failed",
            ["kind", "code"],
            registry=self.registry,
        )
        self.queue_depth = Gauge(
            "llmendpoint_operator_queue_depth", "Endpoints waiting to be reconciled", registry=self.registry
        )
        self.watch_staleness = Gauge(
            "llmendpoint_operator_watch_staleness_seconds", "Time since the API server was last heard of", ["resource"],
            registry=self.registry,
        )  # fmt: skip
        self.objects = Gauge(
            "llmendpoint_operator_cached_objects",
            "Objects in the caches",
            ["resource"],
            registry=self.registry,
        )
        self.evidence_calls = Counter(
            "llmendpoint_operator_evidence_calls",
            "Questions to gateways and engines during rollouts",
            ["kind", "result"],
            registry=self.registry,
        )
        self.watched = Gauge(
            "llmendpoint_operator_rollouts_watched",
            "Endpoints whose gateways or engines are being asked",
            registry=self.registry,
        )
        self.scalings = Counter(
            "llmendpoint_operator_scalings",
            "Changes of the number of replicas by the builtin scaler",
            ["direction", "reason"],
            registry=self.registry,
        )
        self.demand_streams = Gauge(
            "llmendpoint_operator_demand_streams",
            "Gateways that tell load and demand",
            registry=self.registry,
        )
        self.circuits_open = Gauge(
            "llmendpoint_operator_circuits_open",
            "Endpoints whose requests a gateway refuses because too many failed",
            registry=self.registry,
        )
        self.leader = Gauge(
            "llmendpoint_operator_leader", "1 while this process holds the lease", registry=self.registry
        )


class Recommendations(Collector):
    """How many replicas there is work for, where a HorizontalPodAutoscaler asks: read when the page is. An endpoint of
    which nothing is known is not there."""

    def __init__(self, read: Callable[[], Iterable[tuple[tuple[str, str], int]]]) -> None:
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
