"""What the operator knows of each endpoint, as metrics: read from the cached objects at a scrape, so that a deleted
endpoint leaves with its object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .core.scaling.providers import ENDPOINT_NAME
from .kube.client import Json
from .kube.store import dig, key_of

OF_ENDPOINT = ("namespace", ENDPOINT_NAME)
PREFIX = "llmendpoint_operator_"
Row = tuple[tuple[str, ...], float]
Read = Callable[[Json], Iterator[Row]]
"""Values of the labels after `namespace` and `llmendpoint`, and the value."""


class EndpointStates(Collector):
    """`read`: the LLMEndpoints; none where another operator works."""

    def __init__(self, read: Callable[[], Iterable[Json]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """Called by prometheus_client at each scrape."""
        endpoints = list(self._read())
        for name, text, labels, rows in FAMILIES:
            family = GaugeMetricFamily(PREFIX + name, text, labels=(*OF_ENDPOINT, *labels))
            for endpoint in endpoints:
                for values, value in rows(endpoint):
                    family.add_metric((*key_of(endpoint), *values), value)
            yield family


def _conditions(endpoint: Json) -> Iterator[Row]:
    """An endpoint without a status is not ready."""
    found = {c.get("type"): c.get("status") for c in _list(endpoint, "status", "conditions")}
    for kind, status in ({"Ready": "False"} | found).items():
        yield (str(kind),), float(status == "True")


def _rollout(endpoint: Json) -> Iterator[Row]:
    state = dig(endpoint, "status", "rollout", "state")
    if state is not None:
        yield (str(state),), 1


def _revisions(endpoint: Json) -> Iterator[Row]:
    for role, field in (("active", "activeRevision"), ("target", "targetRevision")):
        if revision := dig(endpoint, "status", field):
            yield (str(revision), role), 1


def _weights(endpoint: Json) -> Iterator[Row]:
    for share in _list(endpoint, "status", "traffic", "weights"):
        yield (str(share.get("revision")),), float(share.get("weight", 0))


def _number(*path: str, absent: float | None = None) -> Read:
    """A number of the object. `absent`: what it is where the object has none; None: no row."""

    def rows(endpoint: Json) -> Iterator[Row]:
        found = dig(endpoint, *path)
        if isinstance(found, int | float):
            yield (), float(found)
        elif absent is not None:
            yield (), absent

    return rows


def _list(endpoint: Json, *path: str) -> list[Json]:
    found = dig(endpoint, *path)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


FAMILIES: tuple[tuple[str, str, tuple[str, ...], Read], ...] = (
    ("condition", "1 while the endpoint has this condition with status True", ("type",), _conditions),
    ("replicas_wanted", "Replicas that the endpoint's spec asks for", (), _number("spec", "replicas", absent=1)),
    ("replicas", "Pods of the active revision", (), _number("status", "replicas", absent=0)),
    ("replicas_ready", "Ready pods of the active revision", (), _number("status", "readyReplicas", absent=0)),
    ("revision_info", "1 for the revision that gets requests and for the one that the spec describes", ("revision", "role"), _revisions),
    ("traffic_weight", "Percent of new requests that the revision gets", ("revision",), _weights),
    ("rollout_state", "1 for the state of the endpoint's rollout", ("state",), _rollout),
    (
        "first_token_target_seconds", "Time to the first token that spec.autoscaling asks for (signal ttft)", (),
        _number("spec", "autoscaling", "signals", "ttft", "target"),
    ),
)  # fmt: skip
