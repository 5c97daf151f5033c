"""docs/contribute/contracts.md: `status.paths` has the paths that the LLMRuntime declares, and a change of them restarts no pod."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pydantic import TypeAdapter

from llmendpoint_gateway.core.request import paths as gateways
from llmendpoint_operator.api import LLMRuntimeSpec, llmendpoint, llmruntime
from llmendpoint_operator.core.endpoint.reported import read_fields
from llmendpoint_operator.gather import Platform, gather
from llmendpoint_operator.kube import resources

from ..fake_cluster import NOW, RUNTIME, FakeCluster, make_spec
from .test_one_endpoints_faults import caches, endpoint


def runtime(*paths: str) -> LLMRuntimeSpec:
    return RUNTIME.model_copy(update={"paths": paths})


@pytest.fixture
def serving() -> FakeCluster:
    """One ready replica."""
    cluster = FakeCluster(runtime=runtime("/v1/rerank", "/pooling"))
    cluster.settle()
    cluster.make_ready(cluster.target)
    cluster.settle()
    return cluster


def pods(cluster: FakeCluster) -> dict[str, Any]:
    """What could restart them, by revision."""
    return {r: copy.deepcopy(d["spec"]) for r, d in cluster.by_revision("Deployment").items()}


def test_the_status_has_the_runtimes_paths(serving: FakeCluster) -> None:
    assert serving.status["paths"] == ["/v1/rerank", "/pooling"]
    assert "paths" not in FakeCluster().status


def test_a_change_of_them_reaches_the_status_at_once_and_no_pod(serving: FakeCluster) -> None:
    before, revision = pods(serving), serving.target
    for paths in (("/pooling",), (), ("/score",)):
        serving.runtime = runtime(*paths)
        serving.settle()
        assert serving.status.get("paths", []) == list(paths)
        assert pods(serving) == before
        assert serving.target == serving.active == revision


def test_they_are_no_part_of_a_revisions_name_nor_of_its_pods() -> None:
    made = []
    for paths in ((), ("/pooling",)):
        cluster = FakeCluster(runtime=runtime(*paths))
        cluster.settle()
        made.append(pods(cluster))
    assert made[0] == made[1]


def test_while_another_runtimes_pods_serve_their_paths_pass(serving: FakeCluster) -> None:
    serving.edit(make_spec(runtime={"name": "other"}))
    serving.runtime = runtime("/embed")
    serving.settle()
    assert serving.status["paths"] == ["/v1/rerank", "/pooling"]
    serving.make_ready(serving.target)
    serving.settle()
    assert serving.active == serving.target
    assert serving.status["paths"] == ["/embed"]


@pytest.mark.parametrize("known", [True, False])
def test_paths_that_were_declared_after_the_revision_was_made_pass_on_while_another_runtimes_comes(
    known: bool,
) -> None:
    """The record has none of them. Then the other runtime's pods crash, and the first one's serve again."""
    cluster = FakeCluster()
    cluster.settle()
    cluster.make_ready(cluster.target)
    cluster.settle()
    blue = cluster.target
    cluster.runtime = runtime("/pooling")
    cluster.settle()
    assert cluster.status["paths"] == ["/pooling"]
    cluster.other_paths = {"llmendpoint": ("/pooling",)} if known else {}
    cluster.edit(make_spec(runtime={"name": "other"}))
    cluster.runtime = runtime("/embed")
    cluster.settle()
    assert cluster.active == blue != cluster.target
    assert cluster.status["paths"] == ["/pooling"]
    if known:
        cluster.status |= {"activeRevision": cluster.target, "paths": ["/embed"]}
        cluster.settle()
        assert cluster.active == blue
        assert cluster.status["paths"] == ["/pooling"]


def test_what_another_runtime_of_a_kept_revision_declares_now_is_gathered() -> None:
    cluster = FakeCluster()
    cluster.settle()
    (record,) = cluster.of_kind("ControllerRevision").values()
    record["metadata"] |= {"namespace": "team-a", "resourceVersion": "1"}
    record["metadata"]["ownerReferences"][0]["uid"] = "chat"
    moved = endpoint("chat", spec={"model": {"source": "embedded://demo"}, "runtime": {"name": "other"}})
    of = caches(moved, runtime={"spec": {"image": "engine:1", "paths": ["/pooling"]}})
    of.informers[resources.CONTROLLER_REVISIONS].store.replace([record], "1")
    assert gather(of, moved, Platform()).other_paths == {"llmendpoint": ("/pooling",)}


def test_a_change_of_the_runtime_of_a_kept_revision_wakes_the_endpoint() -> None:
    cluster = FakeCluster()
    cluster.settle()
    (record,) = cluster.of_kind("ControllerRevision").values()
    record["metadata"] |= {"namespace": "team-a", "resourceVersion": "1"}
    moved = endpoint("chat", spec={"model": {"source": "embedded://demo"}, "runtime": {"name": "other"}})
    woken: list[tuple[str, str]] = []
    of = caches(moved, runtime={"spec": {"image": "engine:1"}}, woken=woken.append)
    of.informers[resources.CONTROLLER_REVISIONS].store.replace([record], "1")
    woken.clear()
    for name in ("llmendpoint", "nobodys"):
        changed = {"metadata": {"name": name, "resourceVersion": "9"}, "spec": {"image": "engine:1"}}
        of.informers[resources.RUNTIMES].store.event("MODIFIED", changed)
    assert woken == [("team-a", "chat")]


def test_they_stay_while_the_runtime_is_gone_or_cannot_be_read(serving: FakeCluster) -> None:
    serving.runtime = None
    serving.settle()
    assert serving.status["paths"] == ["/v1/rerank", "/pooling"]


def test_a_status_that_holds_too_many_or_too_long_paths_is_not_read() -> None:
    for paths in (["/a" * 100], [f"/p{n}" for n in range(17)], "/pooling"):
        assert "paths" not in read_fields({"paths": paths}, NOW)


def test_operator_and_gateway_have_the_same_rules() -> None:
    assert f"^{gateways.FORM.pattern}$" == llmruntime.FORM
    assert gateways.OPERATORS_OWN.pattern == llmruntime.OPERATORS_OWN
    assert f"^{gateways.OF_AN_ENDPOINT.pattern}" == llmruntime.OF_AN_ENDPOINT
    longest = TypeAdapter(llmendpoint.PassedPath).json_schema()["maxLength"]
    assert (llmendpoint.MOST_PATHS, longest) == (gateways.MOST_DECLARED, gateways.LONGEST_DECLARED)
