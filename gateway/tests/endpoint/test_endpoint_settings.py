"""docs/concepts/gateway.md: the queue, the breaker and a replica's room are as `spec.traffic` and `spec.circuitBreaker` say."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_gateway.core.endpoint.endpoint_settings import (
    DEFAULT_CIRCUIT,
    DEFAULT_QUEUE,
    CircuitSettings,
    QueueSettings,
    parse_circuit,
    parse_first_byte,
    parse_queue,
)
from llmendpoint_gateway.core.endpoint.loads import Load
from llmendpoint_gateway.core.endpoint.objects import parse_endpoint

CRD = Path(__file__).parents[3] / "crds" / "llmendpoints.llmendpoint.io.yaml"


def load(running: int, waiting: int, kv_usage: float = 0.5) -> Load:
    return Load(running, waiting, kv_usage, 8, 0)


@pytest.mark.parametrize(
    ("present", "in_flight", "limit"),
    [
        (load(0, 0), 0, 12),
        (load(8, 4), 12, 12),
        (load(8, 4), 14, 12),
        (load(7, 0), 12, 12),  # some are on their way there
        (load(8, 1), 6, 9),  # three of another gateway
        (load(8, 4), 0, 6),  # all of another gateway: half is ours
        (load(8, 40), 8, 6),
        (load(3, 0, kv_usage=0.96), 3, 3),
        (load(3, 0, kv_usage=0.96), 0, 1),
        (load(0, 0, kv_usage=0.96), 0, 12),
    ],
)
def test_how_many_requests_a_replica_may_have(present: Load, in_flight: int, limit: int) -> None:
    assert DEFAULT_QUEUE.limit(present, in_flight) == limit


@given(
    st.builds(Load, st.integers(0, 99), st.integers(0, 99), st.floats(0, 1), st.integers(0, 99), st.just(0)),
    st.integers(0, 99),
    st.integers(0, 9),
)
def test_one_request_always_has_room_and_never_more_than_the_replica_has(
    present: Load, in_flight: int, per_replica: int
) -> None:
    limit = QueueSettings(per_replica=per_replica).limit(present, in_flight)
    assert 1 <= limit <= max(1, present.max_num_seqs + per_replica)


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        ({}, DEFAULT_QUEUE),
        ({"traffic": {"queue": None}}, DEFAULT_QUEUE),
        ({"traffic": {"queue": {"maxRequests": True, "timeoutSeconds": "5"}}}, DEFAULT_QUEUE),
        (
            {
                "traffic": {
                    "queue": {
                        "maxRequests": 7,
                        "timeoutSeconds": 2.5,
                        "waitingPerReplica": 0,
                        "maxKvUsage": 0.5,
                    }
                }
            },
            QueueSettings(7, 2.5, 0, 0.5),
        ),
    ],
)
def test_what_is_read_of_a_spec(spec: dict[str, Any], settings: QueueSettings) -> None:
    assert parse_queue(spec) == settings


def test_the_defaults_are_those_of_the_crd() -> None:
    schema = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    queue = schema["properties"]["spec"]["properties"]["traffic"]["properties"]["queue"]["properties"]
    filled = {name: field["default"] for name, field in queue.items() if "default" in field}
    assert set(queue) == {*filled, "timeoutSeconds"}
    assert parse_queue({"traffic": {"queue": filled}}) == DEFAULT_QUEUE
    breaker = schema["properties"]["spec"]["properties"]["circuitBreaker"]["properties"]
    filled = {name: field["default"] for name, field in breaker.items()}
    assert parse_circuit({"circuitBreaker": filled}) == DEFAULT_CIRCUIT
    assert len(filled) == len(fields(CircuitSettings))


def test_what_is_read_of_a_breaker_and_of_the_time_to_the_first_byte() -> None:
    breaker = {"errorRate": 0.25, "windowSeconds": 60, "minRequests": 7, "openSeconds": 2.5}
    assert parse_circuit({"circuitBreaker": breaker}) == CircuitSettings(0.25, 60, 7, 2.5)
    assert parse_circuit({}) == DEFAULT_CIRCUIT
    assert parse_first_byte({"traffic": {"firstByteTimeoutSeconds": 30}}) == 30
    assert parse_first_byte({"traffic": {"firstByteTimeoutSeconds": None}}) is None


@pytest.mark.parametrize(
    ("spec", "expects"),
    [
        ({"replicas": 1}, True),
        ({"replicas": 0}, False),
        ({"replicas": 0, "autoscaling": {"maxReplicas": 3}}, True),
        ({"replicas": 0, "autoscaling": {"provider": "keda", "maxReplicas": 3}}, True),
        ({"replicas": 0, "autoscaling": {"provider": "hpa", "maxReplicas": 3}}, False),
        ({"replicas": 0, "autoscaling": {"provider": "none", "maxReplicas": 3}}, False),
    ],
)
def test_a_replica_is_expected_where_one_is_asked_for_or_a_scaler_sees_who_waits(
    spec: dict[str, Any], expects: bool
) -> None:
    metadata = {"namespace": "team", "name": "chat", "creationTimestamp": "2026-01-01T00:00:00Z"}
    assert parse_endpoint({"metadata": metadata, "spec": spec}).expects is expects
