"""What the gateway counts with each request, as `llmendpoint_gateway_*`."""

from collections.abc import Container, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram

PREFIX = "llmendpoint_gateway_"
OF_ENDPOINT = ("namespace", "llmendpoint")
OF_REVISION = (*OF_ENDPOINT, "revision")
"""The labels of what is about an endpoint or a revision, with these names in all parts. The keys `namespace/name` and
`namespace/name/revision` split at `/` are their values."""
# Seconds. Decisions take microseconds, far below prometheus_client's default buckets.
WAIT_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 20, 40, 60)
BUCKETS = (1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 1e-2, 1e-1)


class Refusals:
    """Requests that got no replica, by endpoint and code. Those of an endpoint that is gone are forgotten."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}

    def count(self, endpoint: str, code: str) -> None:
        key = endpoint, code
        self._counts[key] = self._counts.get(key, 0) + 1

    def of(self, endpoints: Container[str]) -> Mapping[tuple[str, str], int]:
        """Endpoint and code -> requests."""
        self._counts = {key: number for key, number in self._counts.items() if key[0] in endpoints}
        return self._counts


class Metrics:
    """Metrics of the decision path. A child is looked up once, not for each decision."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._decisions = Counter(
            f"{PREFIX}decisions",
            "Requests, by what the gateway did with them",
            ["outcome"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            f"{PREFIX}decision_seconds",
            "Time to parse a request's body and to choose a replica",
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._waited = Histogram(
            f"{PREFIX}waited_seconds",
            "How long a request waited until a replica had room, if it had to wait",
            buckets=WAIT_BUCKETS,
            registry=self.registry,
        )
        self._exported = Counter(
            f"{PREFIX}traces_exported",
            "Requests whose spans the collector has taken",
            registry=self.registry,
        )
        self._dropped = Counter(
            f"{PREFIX}traces_dropped",
            "Requests whose spans are lost: the collector did not take them, or too many waited for it",
            registry=self.registry,
        )
        self._refused = Counter(
            f"{PREFIX}key_refusals",
            "Requests that were refused for their API key or the lack of one (401), or for what it may use (403: forbidden)",
            ["reason"],
            registry=self.registry,
        )
        self._by_outcome: dict[str, Counter] = {}
        self.refusals = Refusals()

    def decided(self, outcome: str, seconds: float) -> None:
        counter = self._by_outcome.get(outcome)
        if counter is None:
            counter = self._by_outcome[outcome] = self._decisions.labels(outcome)
        counter.inc()
        self._seconds.observe(seconds)

    def traced(self, requests: int, *, exported: bool) -> None:
        (self._exported if exported else self._dropped).inc(requests)

    def refused(self, reason: str) -> None:
        """`reason`: one of the few of core/identity/keys.py, or `forbidden`."""
        self._refused.labels(reason).inc()

    def waited(self, seconds: float) -> None:
        self._waited.observe(seconds)
