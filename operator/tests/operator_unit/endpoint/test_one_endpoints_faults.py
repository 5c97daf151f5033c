"""docs/operate/troubleshooting.md: an endpoint or an LLMRuntime that cannot be read says so, and every other endpoint goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llmendpoint_operator.core.scaling.demand import Demand
from llmendpoint_operator.gather import Platform, gather
from llmendpoint_operator.kube import resources
from llmendpoint_operator.kube.caches import Caches
from llmendpoint_operator.kube.client import KubeApi
from llmendpoint_operator.metrics import Metrics, Recommendations
from llmendpoint_operator.observe.scaling.opinion import Opinions

from ..fake_cluster import FakeCluster, make_spec

NEWER = {"image": "engine:1", "readiness": "Telepathy"}


class Loads:
    """A source that knows of two requests that wait, for everybody, and fails for one endpoint."""

    def of(self, key: tuple[str, str]) -> Demand:
        if key[1] == "failing":
            raise ValueError("no figures")
        return Demand(waiting=2)


def endpoint(name: str, **fields: Any) -> dict[str, Any]:
    metadata = {"namespace": "team-a", "name": name, "uid": name, "resourceVersion": "1"}
    autoscaling = {"provider": "hpa", "maxReplicas": 5, "signals": {"queueDepth": {"target": 1}}}
    spec = {"model": {"source": "embedded://demo"}, "autoscaling": autoscaling}
    return {"metadata": metadata, "spec": spec, **fields}


def caches(
    *endpoints: dict[str, Any], runtime: dict[str, Any], woken: Callable[[Any], None] = print
) -> Caches:
    found = Caches(cast(KubeApi, None), woken, None)
    found.informers[resources.ENDPOINTS].store.replace(list(endpoints), "1")
    stored = {"metadata": {"name": "llmendpoint", "resourceVersion": "1"}, **runtime}
    found.informers[resources.RUNTIMES].store.replace([stored], "1")
    return found


def test_a_runtime_of_a_newer_version_is_said_to_be_unreadable_and_where() -> None:
    found = gather(caches(endpoint("chat"), runtime={"spec": NEWER}), endpoint("chat"), Platform())
    assert found.runtime is None
    assert "spec.readiness" in found.runtime_error
    assert gather(caches(endpoint("chat"), runtime={}), endpoint("chat"), Platform()).runtime_error


def test_the_page_of_metrics_holds_everybody_elses_recommendations() -> None:
    """All endpoints' runtime is of a newer version, one's status was written by a stranger, and one's figures fail."""
    odd = endpoint("odd", status={"traffic": {"weights": [{"revision": "a"}]}})
    of = caches(endpoint("chat"), endpoint("failing"), odd, runtime={"spec": NEWER})
    metrics = Metrics()
    metrics.registry.register(Recommendations(Opinions(of, Loads().of).for_autoscalers))
    [family] = [f for f in metrics.registry.collect() if f.name.endswith("recommended_replicas")]
    assert [(s.labels["llmendpoint"], s.value) for s in family.samples] == [("chat", 2.0), ("odd", 2.0)]


def test_a_watch_survives_an_endpoint_whose_spec_is_of_another_shape() -> None:
    woken: list[Any] = []
    odd = endpoint("odd", spec={"model": None, "runtime": "llmendpoint", "resources": []})
    of = caches(odd, endpoint("chat"), runtime={"spec": NEWER}, woken=woken.append)
    woken.clear()
    of._runtime_changed({"metadata": {"name": "llmendpoint"}})
    of._model_job_changed({"metadata": {"namespace": "team-a", "name": "job"}})
    assert ("team-a", "odd") not in woken


def serving() -> FakeCluster:
    cluster = FakeCluster(make_spec(rollout={"observe": {"duration": 0}}))
    cluster.settle()
    cluster.make_ready(cluster.target)
    cluster.settle()
    return cluster


def test_an_unreadable_runtime_keeps_what_is_there_and_says_so() -> None:
    cluster = serving()
    before = str(cluster.active)
    cluster.runtime, cluster.runtime_error = None, "spec.readiness: not known"
    cluster.settle()
    degraded = cluster.condition("Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "RuntimeUnreadable")
    assert "spec.readiness" in degraded["message"]
    assert cluster.condition("Ready")["status"] == "True"
    assert cluster.condition("Stalled") == {}, "the spec is met"

    cluster.edit(make_spec(replicas=3, rollout={"observe": {"duration": 0}}))
    cluster.settle()
    assert cluster.replicas() == {before: 3}, "what is recorded is scaled"

    cluster.edit(make_spec(replicas=3, engine={"maxNumSeqs": 2}))
    cluster.settle()
    assert cluster.condition("Stalled")["reason"] == "RuntimeUnreadable"
    assert cluster.condition("Progressing")["reason"] == "RuntimeUnreadable"
    assert cluster.active == before
    assert cluster.replicas() == {before: 3}
