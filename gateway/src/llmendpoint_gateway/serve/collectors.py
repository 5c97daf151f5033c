"""What the gateway shows of its state when it is scraped, as `llmendpoint_gateway_*`."""

from collections.abc import Iterable
from contextlib import suppress

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from llmendpoint_gateway.errors import EnvoyAway
from llmendpoint_gateway.serve.envoy.ads import Ads
from llmendpoint_gateway.serve.envoy.envoy_stats import EnvoyStats
from llmendpoint_gateway.serve.metrics import PREFIX
from llmendpoint_gateway.serve.placement.control import Control


class StateCollector(Collector):
    """Reads the state when scraped."""

    def __init__(self, control: Control, ads: Ads) -> None:
        self._control, self._ads = control, ads
        self._placement = control.placement

    def collect(self) -> Iterable[Metric]:
        yield from self._of_configuration()
        yield from self._of_breakers()
        yield from self._of_requests()

    def _of_configuration(self) -> Iterable[Metric]:
        staleness = self._placement.reach.seconds(self._control.now())
        for name, text, value in (
            ("snapshot_generation", "Changes of what Envoy is to hold", self._control.generation),
            (
                "acknowledged_generation",
                "The last generation that Envoy took",
                self._ads.acknowledged_generation,
            ),
            ("envoy_connected", "1 while Envoy is connected", self._ads.connected),
            ("synced", "1 once both kinds have been listed", self._control.synced),
            ("watch_staleness_seconds", "How long the API server has been out of reach", staleness),
        ):
            yield GaugeMetricFamily(f"{PREFIX}{name}", text, value=float(value))
        yield CounterMetricFamily(
            f"{PREFIX}nacks", "Snapshots that Envoy refused", value=float(self._ads.nacks)
        )

    def _of_breakers(self) -> Iterable[Metric]:
        breakers, circuits = self._placement.breakers, self._placement.circuits
        ejections = CounterMetricFamily(
            f"{PREFIX}ejections",
            "Replicas taken out of the pick, by what their requests ended with",
            labels=["cause"],
        )
        for cause, number in breakers.ejections.items():
            ejections.add_metric([cause.value], number)
        yield ejections
        ejected = GaugeMetricFamily(
            f"{PREFIX}ejected",
            "Replicas that are out of the pick, or tried by single requests",
            labels=["address"],
        )
        for address in breakers.ejected:
            ejected.add_metric([address], 1)
        yield ejected
        openings = CounterMetricFamily(
            f"{PREFIX}circuit_openings", "Endpoints whose breaker opened, by cause", labels=["cause"]
        )
        for reason, number in circuits.openings.items():
            openings.add_metric([reason.value], number)
        yield openings
        opened = GaugeMetricFamily(
            f"{PREFIX}circuit_open", "1 while an endpoint's breaker is not closed", labels=["endpoint"]
        )
        for endpoint in circuits.open:
            opened.add_metric([endpoint], 1)
        yield opened

    def _of_requests(self) -> Iterable[Metric]:
        queue = self._control.held.waiting
        waiting = GaugeMetricFamily(
            f"{PREFIX}waiting", "Requests that wait for a replica", labels=["endpoint"]
        )
        for endpoint in queue:
            waiting.add_metric([endpoint], queue.count(endpoint))
        yield waiting
        for name, text, number in (
            ("suspects", "Requests that were there when a replica crashed", len(self._placement.poison)),
            ("waiting_requests", "Requests that wait for any replica", queue.requests),
            ("waiting_bytes", "Size of their bodies", queue.bytes),
        ):
            yield GaugeMetricFamily(f"{PREFIX}{name}", text, value=float(number))
        in_flight = GaugeMetricFamily(
            f"{PREFIX}in_flight", "Requests in flight", labels=["cluster", "address"]
        )
        for cluster, counts in self._placement.in_flight.counts.items():
            for address, count in counts.items():
                in_flight.add_metric([cluster, address], count)
        yield in_flight


class EnvoyCollector(Collector):
    """What Envoy counts and the picker does not see. `connections` and `refused` as in EnvoyStats; None while Envoy is away."""

    def __init__(self) -> None:
        self.connections: int | None = None
        self.refused: int | None = None

    async def read(self, envoy: EnvoyStats) -> None:
        self.connections = self.refused = None
        with suppress(EnvoyAway):
            self.connections, self.refused = await envoy.connections(), await envoy.refused()

    def collect(self) -> Iterable[Metric]:
        if self.connections is not None:
            yield GaugeMetricFamily(
                f"{PREFIX}connections", "Connections that callers have open", value=self.connections
            )
        if self.refused is not None:
            yield CounterMetricFamily(
                f"{PREFIX}overload_refusals",
                "Requests refused because Envoy has as many under way as it has room for",
                value=self.refused,
            )
