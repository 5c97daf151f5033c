"""The gateway's state at a scrape, as `llmendpoint_gateway_*`."""

from collections.abc import Callable, Iterable
from contextlib import suppress

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from llmendpoint_gateway.errors import EnvoyAway
from llmendpoint_gateway.serve.envoy.ads import Ads
from llmendpoint_gateway.serve.envoy.envoy_stats import EnvoyStats
from llmendpoint_gateway.serve.identity.known_keys import KnownKeys
from llmendpoint_gateway.serve.metrics import OF_ENDPOINT, OF_REVISION, PREFIX, Refusals
from llmendpoint_gateway.serve.placement.control import Control
from llmendpoint_gateway.serve.registry_page import LINES


class StateCollector(Collector):
    """Reads the state when scraped."""

    def __init__(self, control: Control, ads: Ads, refusals: Refusals) -> None:
        self._control, self._ads, self._refusals = control, ads, refusals
        self._placement = control.placement

    def collect(self) -> Iterable[Metric]:
        yield from self._of_configuration()
        yield from self._of_breakers()
        yield from self._of_requests()
        yield from self._of_refusals()
        yield from self._of_adapters()
        yield from self._of_prompts()

    def _of_configuration(self) -> Iterable[Metric]:
        staleness = self._placement.reach.seconds(self._control.now())
        for name, text, value in (
            ("snapshot_generation", "Number of the newest configuration for Envoy", self._control.generation),
            (
                "acknowledged_generation",
                "Number of the configuration that Envoy accepted last",
                self._ads.acknowledged_generation,
            ),
            (
                "started",
                "1 once Envoy has had a whole configuration since the picker started; before, no request is served",
                self._ads.started,
            ),
            ("envoy_connected", "1 while Envoy is connected to the picker", self._ads.connected),
            (
                "synced",
                "1 once the picker has listed all LLMEndpoints and EndpointSlices",
                self._control.synced,
            ),
            (
                "watch_staleness_seconds",
                "How long the API server has been out of reach, 0 while it is in reach",
                staleness,
            ),
            (
                "load_lag_seconds",
                "How late the replicas' loads are read, 0 while all are read in time",
                self._placement.loads.lag,
            ),
        ):
            yield GaugeMetricFamily(f"{PREFIX}{name}", text, value=float(value))
        yield CounterMetricFamily(
            f"{PREFIX}nacks", "Configurations that Envoy refused", value=float(self._ads.nacks)
        )

    def _of_breakers(self) -> Iterable[Metric]:
        breakers, circuits = self._placement.breakers, self._placement.circuits
        ejections = CounterMetricFamily(
            f"{PREFIX}ejections",
            "Ejections of replicas, by how their requests ended",
            labels=["cause"],
        )
        for cause, number in breakers.ejections.items():
            ejections.add_metric([cause.value], number)
        yield ejections
        ejected = GaugeMetricFamily(
            f"{PREFIX}ejected",
            "1 for a replica that is ejected, or that gets single trial requests only",
            labels=(*OF_REVISION, "address"),
        )
        for address in breakers.ejected:
            if cluster := self._placement.cluster_of(address):
                ejected.add_metric([*cluster.split("/"), address], 1)
        yield ejected
        openings = CounterMetricFamily(
            f"{PREFIX}circuit_openings",
            "How often the breaker of an endpoint opened, by cause",
            labels=["cause"],
        )
        for reason, number in circuits.openings.items():
            openings.add_metric([reason.value], number)
        yield openings
        opened = GaugeMetricFamily(
            f"{PREFIX}circuit_open", "1 while the endpoint's breaker is not closed", labels=OF_ENDPOINT
        )
        for endpoint in circuits.open:
            opened.add_metric(endpoint.split("/"), 1)
        yield opened

    def _of_refusals(self) -> Iterable[Metric]:
        refusals = CounterMetricFamily(
            f"{PREFIX}refusals",
            "Requests for an endpoint that got no replica, by the code of the error",
            labels=(*OF_ENDPOINT, "code"),
        )
        for (endpoint, code), number in self._refusals.of(self._placement.view.endpoints).items():
            refusals.add_metric([*endpoint.split("/"), code], number)
        yield refusals

    def _of_adapters(self) -> Iterable[Metric]:
        requests = CounterMetricFamily(
            f"{PREFIX}adapter_requests",
            "Requests for an adapter of the endpoint's spec that went to a replica",
            labels=(*OF_ENDPOINT, "adapter"),
        )
        for (endpoint, adapter), number in self._placement.adapters.requests.items():
            requests.add_metric([*endpoint.split("/"), adapter], number)
        yield requests

    def _of_prompts(self) -> Iterable[Metric]:
        prompts = self._placement.prompts
        requests = CounterMetricFamily(
            f"{PREFIX}prefix_requests",
            "Prompts that went to a replica, by where the longest known beginning of the prompt was",
            labels=["found"],
        )
        for found, number in prompts.requests.items():
            requests.add_metric([found.value], number)
        yield requests
        for name, text, size in (
            ("prefix_prompt_bytes", "Size of the prompts that went to a replica", prompts.bytes),
            (
                "prefix_matched_bytes",
                "Bytes at the beginning of these prompts that their replicas had got before",
                prompts.matched_bytes,
            ),
        ):
            yield CounterMetricFamily(f"{PREFIX}{name}", text, value=float(size))
        yield GaugeMetricFamily(
            f"{PREFIX}prefix_links",
            "Entries of the table of beginnings of prompts",
            value=float(len(prompts.prefixes)),
        )

    def _of_requests(self) -> Iterable[Metric]:
        queue = self._control.held.waiting
        waiting = GaugeMetricFamily(
            f"{PREFIX}waiting", "Requests that wait for a replica of the endpoint", labels=OF_ENDPOINT
        )
        for endpoint in queue:
            waiting.add_metric(endpoint.split("/"), queue.count(endpoint))
        yield waiting
        for name, text, number in (
            (
                "suspects",
                "Requests that were in flight at a replica when it crashed",
                len(self._placement.poison),
            ),
            ("waiting_requests", "Requests that wait for a replica, of all endpoints", queue.requests),
            ("waiting_bytes", "Size of the bodies of all waiting requests", queue.bytes),
        ):
            yield GaugeMetricFamily(f"{PREFIX}{name}", text, value=float(number))
        for name, text, taken in (
            ("in_flight", "Requests in flight at a replica", self._placement.in_flight),
            ("sockets", "Open WebSockets of a replica", self._placement.sockets),
        ):
            # A list, because they change while the page is written.
            rows = [(cluster, *one) for cluster, counts in taken.counts.items() for one in counts.items()]
            for start in range(0, max(1, len(rows)), LINES):
                gauge = GaugeMetricFamily(f"{PREFIX}{name}", text, labels=(*OF_REVISION, "address"))
                for cluster, address, count in rows[start : start + LINES]:
                    gauge.add_metric([*cluster.split("/"), address], count)
                yield gauge


class KeyCollector(Collector):
    """What is known of the LLMKeys. `clock`: seconds, monotonic."""

    def __init__(self, keys: KnownKeys, clock: Callable[[], float]) -> None:
        self._keys, self._clock = keys, clock

    def collect(self) -> Iterable[Metric]:
        keys = self._keys
        for name, text, value in (
            ("keys", "LLMKeys that the picker knows", len(keys.table)),
            (
                "keys_left_out",
                "LLMKeys that the picker has no room for: they let nobody in",
                keys.table.left_out,
            ),
            (
                "keys_synced",
                "1 once the picker has listed all LLMKeys; before, no key lets anybody in",
                keys.synced,
            ),
            (
                "keys_staleness_seconds",
                "How long the LLMKeys cannot be read, 0 while they can: a revoked key is valid for so long",
                keys.reach.seconds(self._clock()),
            ),
        ):
            yield GaugeMetricFamily(f"{PREFIX}{name}", text, value=float(value))


class EnvoyCollector(Collector):
    """What Envoy counts and the picker does not see. `connections` and `refused`: as in EnvoyStats; None if Envoy does
    not answer."""

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
                f"{PREFIX}connections", "Open connections of callers", value=self.connections
            )
        if self.refused is not None:
            yield CounterMetricFamily(
                f"{PREFIX}overload_refusals",
                "Requests that Envoy refused because it had as many as it has room for",
                value=self.refused,
            )
