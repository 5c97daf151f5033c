"""docs/reference/metrics.md: the picker's own figures, of many replicas, written while requests are decided."""

import time
from collections.abc import Iterable
from typing import Any, cast

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from llmendpoint_gateway.core.placement.in_flight import InFlight
from llmendpoint_gateway.serve.collectors import StateCollector
from llmendpoint_gateway.serve.envoy.ads import Ads
from llmendpoint_gateway.serve.parts import make_parts
from llmendpoint_gateway.serve.registry_page import in_pieces, registry_pieces

REPLICAS = 5000


def busy_registry() -> tuple[CollectorRegistry, InFlight]:
    """Of a gateway with a request at each of 5,000 replicas."""
    ads = Ads()
    parts = make_parts(ads, lambda: 0.0, lambda *_: cast(Any, None), first_ticket=1)
    taken = parts.placement.in_flight
    for number in range(REPLICAS):
        taken.take(f"team/chat-{number % 500}/r1", f"10.0.{number >> 8}.{number & 255}:8000")
    registry = CollectorRegistry()
    registry.register(StateCollector(parts.control, ads, parts.metrics.refusals))
    return registry, taken


def test_the_page_is_what_prometheus_client_would_write() -> None:
    registry = CollectorRegistry()
    Counter("asked", "of", ["code"], registry=registry).labels("a\n").inc()
    Histogram("seconds", "time", registry=registry).observe(0.2)
    assert "".join(registry_pieces(registry)) == generate_latest(registry).decode()


class Refused(Collector):
    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily("refused", "of", labels=["code"])
        for number in range(1000):
            family.add_metric([str(number)], number)
        yield family


def test_a_family_of_many_lines_has_one_heading_and_loses_none() -> None:
    registry = CollectorRegistry()
    registry.register(Refused())
    found = list(registry_pieces(registry))
    assert len(found) == 5
    assert "".join(found) == generate_latest(registry).decode()


def test_a_counter_with_many_children_stays_whole_because_each_child_has_two_lines() -> None:
    registry = CollectorRegistry()
    counter = Counter("asked", "of", ["code"], registry=registry)
    for number in range(300):
        counter.labels(str(number)).inc(number)
    assert "".join(registry_pieces(registry)) == generate_latest(registry).decode()


def test_the_page_of_5000_busy_replicas_leaves_the_event_loop_every_few_milliseconds() -> None:
    registry, _ = busy_registry()
    taken, began = [], time.process_time()
    for _ in registry_pieces(registry):
        taken.append(time.process_time() - began)
        began = time.process_time()
    assert sum(taken) > 2 * sorted(taken)[-2], "no piece is most of the page"
    assert sorted(taken)[-2] < 0.012, "the longest but one: the garbage collector may take one"


async def test_requests_come_and_end_while_the_page_is_written() -> None:
    registry, taken = busy_registry()
    pieces = registry_pieces(registry)
    first = "".join(piece for _, piece in zip(range(20), pieces, strict=False))
    for number in range(REPLICAS):
        taken.release(f"team/chat-{number % 500}/r1", f"10.0.{number >> 8}.{number & 255}:8000")
    text = first + await in_pieces(pieces)
    assert text.count("\nllmendpoint_gateway_in_flight{") == REPLICAS
