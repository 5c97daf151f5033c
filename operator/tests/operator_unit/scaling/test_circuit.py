"""docs/concepts/gateway.md: an endpoint whose breaker is open has the condition CircuitOpen, and Events with each gateway's figures."""

from __future__ import annotations

from dataclasses import replace

from llmendpoint_operator.core.endpoint.plan import WriteStatus, make_plan
from llmendpoint_operator.core.scaling.circuit import Circuit
from llmendpoint_operator.core.scaling.demand import Demand, Report, combine
from llmendpoint_operator.observe.scaling.circuit import Circuits
from llmendpoint_operator.observe.scaling.demand import parse_report

from ..fake_cluster import NOW, FakeCluster

CLOSED = Circuit("closed")
OPEN = Circuit("open", 40, 37)
KEY = ("team-a", "chat")


def status_written(cluster: FakeCluster, **circuits: Circuit) -> WriteStatus | None:
    """What is written when the gateways tell this."""
    plain = cluster.snapshot()
    plan = make_plan(replace(plain, observed=replace(plain.observed, circuits=circuits)), NOW)
    found = [step for step in plan.steps if isinstance(step, WriteStatus)]
    if found:
        cluster.status = found[0].status
    return found[0] if found else None


def serving() -> FakeCluster:
    cluster = FakeCluster()
    cluster.settle()
    return cluster


def condition(cluster: FakeCluster) -> dict[str, str]:
    return next((c for c in cluster.status["conditions"] if c["type"] == "CircuitOpen"), {})


def test_an_open_breaker_is_a_condition_and_an_event_with_the_figures_and_its_end_is_told_too() -> None:
    cluster = serving()
    written = status_written(cluster, a=OPEN, b=CLOSED)
    assert written is not None
    assert condition(cluster)["status"] == "True"
    assert "from a and" in condition(cluster)["message"]
    [event] = written.events
    assert (event.reason, event.type) == ("CircuitOpened", "Warning")
    assert "a: 37 of 40 failed" in event.message

    written = status_written(cluster, a=CLOSED, b=CLOSED)
    assert written is not None
    assert [event.reason for event in written.events] == ["CircuitClosed"]
    assert condition(cluster) == {}


def test_a_breaker_that_opened_without_an_error_rate_has_no_figures_to_tell() -> None:
    written = status_written(serving(), a=Circuit("open"))
    assert written is not None
    assert "a: every replica is ejected" in written.events[0].message


def test_a_breaker_that_goes_on_being_open_writes_nothing_though_its_figures_move() -> None:
    cluster = serving()
    status_written(cluster, a=OPEN)
    assert "from every gateway and" in condition(cluster)["message"]
    assert status_written(cluster, a=Circuit("half-open", 1, 1)) is None
    assert status_written(cluster, a=Circuit("open", 2, 2)) is None


def test_each_gateways_breaker_is_told_and_a_gateway_that_tells_none_has_none() -> None:
    told = {"waiting": 0, "replicas": {}}
    breaker = {"state": "open", "since": "2026-01-01T00:00:00Z", "requests": 40, "errors": 37}
    found = combine(
        {"a": parse_report({**told, "breaker": breaker}, 0.0), "b": parse_report(told, 0.0), "silent": None}
    )
    assert found is not None
    assert found.circuits == {"a": OPEN}


def test_an_endpoint_is_woken_when_a_gateway_opens_or_closes_and_at_no_other_news() -> None:
    woken: list[tuple[str, str]] = []
    said: dict[str, Report | None] = {"a": Report(circuit=CLOSED)}
    circuits = Circuits(lambda _: combine(said), woken.append)

    def news(report: Report | None) -> int:
        said["a"] = report
        woken.clear()
        circuits.heard(KEY)
        return len(woken)

    assert news(Report(waiting=3, circuit=CLOSED)) == 0
    assert news(Report(circuit=OPEN)) == 1
    assert len(circuits) == 1
    assert news(Report(circuit=Circuit("half-open", 1, 1))) == 0
    assert news(None) == 1, "a gateway that is gone refuses nobody"
    assert len(circuits) == 0
    assert circuits.of(KEY) == {}


def test_demand_without_breakers_is_as_before() -> None:
    assert Demand().circuits == {}
