"""What the service counts, as `llmendpoint_batch_*`."""

from prometheus_client import CollectorRegistry, Counter, Gauge

PREFIX = "llmendpoint_batch_"


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._lines = Counter(
            f"{PREFIX}lines",
            "Lines that got their answer: completed or failed",
            ["result"],
            registry=self.registry,
        )
        self.attempts_again = Counter(
            f"{PREFIX}attempts_again",
            "Attempts after which a line or a background response is sent again: the endpoint had no room, or the connection broke",
            registry=self.registry,
        )
        self.storage_failures = Counter(
            f"{PREFIX}storage_failures",
            "Writes that the disk or the database did not take; they are tried again",
            registry=self.registry,
        )
        self.in_flight = Gauge(
            f"{PREFIX}in_flight",
            "Lines and background responses that are under way now",
            registry=self.registry,
        )
        self.unfinished = Gauge(f"{PREFIX}unfinished", "Batches that have not ended", registry=self.registry)
        self.background = Gauge(
            f"{PREFIX}background_responses",
            "Background responses that have not ended",
            registry=self.registry,
        )
        self.responses = Gauge(f"{PREFIX}responses", "Stored responses", registry=self.registry)
        self.responses_bytes = Gauge(
            f"{PREFIX}responses_bytes", "Bytes of all stored responses", registry=self.registry
        )
        self.storage = Gauge(
            f"{PREFIX}files_bytes", "Bytes of all files, and of parts of uploads", registry=self.registry
        )
        self._good, self._bad = self._lines.labels("completed"), self._lines.labels("failed")

    def line(self, good: bool) -> None:
        (self._good if good else self._bad).inc()
