"""Every metric that the operator, the gateway, the batch service and the engine register, from their own registries.

The simulator has the engine's metrics; the probe has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from llmendpoint_batch.metrics import Metrics as BatchMetrics
from llmendpoint_gateway.serve.collectors import EnvoyCollector, KeyCollector, StateCollector
from llmendpoint_gateway.serve.envoy.ads import Ads
from llmendpoint_gateway.serve.identity.known_keys import KnownKeys
from llmendpoint_gateway.serve.metrics import Metrics as GatewayMetrics
from llmendpoint_gateway.serve.parts import make_parts
from llmendpoint_gateway.serve.request_page import REQUESTS, TIMES
from llmendpoint_operator.endpoint_metrics import EndpointStates
from llmendpoint_operator.metrics import Metrics as OperatorMetrics
from llmendpoint_operator.metrics import Recommendations
from llmendpoint_server.api.metrics import Metrics as EngineMetrics
from llmendpoint_server.protocol import Stats
from tests.reference.pages import table

UNITS = {"_seconds": "seconds", "_bytes": "bytes", "_perc": "0 to 1"}
SUFFIXES = {"counter": "_total", "histogram": "", "gauge": ""}


@dataclass(frozen=True, slots=True)
class Registered:
    """One metric as Prometheus shows it, a counter with its `_total`."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str

    @property
    def unit(self) -> str:
        if self.help.startswith("1 "):
            return "0 or 1"
        if self.help.startswith(("Tokens ", "Prompt tokens ")):
            return "tokens"
        base = self.name.removesuffix("_total")
        return next((unit for suffix, unit in UNITS.items() if base.endswith(suffix)), "number")


def operator_metrics() -> str:
    metrics = OperatorMetrics()
    return _table(
        [*registered(metrics.registry), *_families([Recommendations(lambda: []), EndpointStates(lambda: [])])]
    )


def gateway_metrics() -> str:
    of_requests = [_one(f.kind, f.name, f.labels, f.text) for f in (REQUESTS, *TIMES.values())]
    return _table([*registered(GatewayMetrics().registry), *_families(_gateway_collectors()), *of_requests])


def batch_metrics() -> str:
    return _table(registered(BatchMetrics().registry))


def engine_metrics() -> str:
    engine = SimpleNamespace(stats=Stats(), loaded=None, state="ready", failure=lambda: None)
    metrics = EngineMetrics(cast(Any, engine), "model", max_loras=1)
    return _table(registered(metrics._registry))


def registered(registry: CollectorRegistry) -> list[Registered]:
    """What a registry holds: single metrics, and collectors that make families when they are read."""
    found = []
    for collector in dict.fromkeys(registry._collector_to_names):
        one = cast(Any, collector)
        if hasattr(one, "_labelnames"):
            found.append(_one(one._type, one._name, one._labelnames, one._documentation))
        else:
            found += _families([one])
    return found


def _gateway_collectors() -> Iterator[Collector]:
    ads = Ads()
    parts = make_parts(ads, lambda: 0.0, lambda *_: cast(Any, None), first_ticket=1)
    yield StateCollector(parts.control, ads, parts.metrics.refusals)
    yield KeyCollector(KnownKeys(), lambda: 0.0)
    envoy = EnvoyCollector()
    envoy.connections = envoy.refused = 0
    yield envoy


def _families(collectors: Iterable[Collector]) -> list[Registered]:
    families: list[Metric] = [family for collector in collectors for family in collector.collect()]
    return [_one(f.type, f.name, cast(Any, f)._labelnames, f.documentation) for f in families]


def _one(kind: str, name: str, labels: Sequence[str], text: str) -> Registered:
    return Registered(name + SUFFIXES[kind], kind, tuple(labels), text)


def _table(metrics: Iterable[Registered]) -> str:
    rows = (
        (f"`{m.name}`", m.type, ", ".join(f"`{label}`" for label in m.labels), m.unit, m.help)
        for m in sorted(metrics, key=lambda m: m.name)
    )
    return table(("name", "type", "labels", "unit", "meaning"), rows)
