"""docs/concepts/rollouts.md: an upgrade restarts no pod: records hold all values, so no new default or field changes what runs.

landed/records.json was written by the operator before records held every value: specs, runtimes, and what it made of them.
"""

from __future__ import annotations

import copy
import json
import typing
from collections.abc import Iterator
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from llmendpoint_operator.api import LLMEndpointSpec, LLMRuntimeSpec, PodInputs
from llmendpoint_operator.core.endpoint.plan import Apply
from llmendpoint_operator.core.endpoint.snapshot import Request
from llmendpoint_operator.core.pods.agreement import agrees, current_hash
from llmendpoint_operator.core.pods.defaults import INPUTS, RUNTIME
from llmendpoint_operator.core.pods.revision import full_inputs, legacy_hash, parse_revision

from ..fake_cluster import NOW, FakeCluster, make_spec

LANDED: dict[str, Any] = json.loads((Path(__file__).parents[1] / "landed/records.json").read_text())
QUIET = {"rollout": {"observe": {"duration": 0}}}


def serving(spec: dict[str, Any], runtime: dict[str, Any]) -> FakeCluster:
    """One revision of today's operator, at rest."""
    cluster = FakeCluster(
        LLMEndpointSpec.model_validate(spec | QUIET), LLMRuntimeSpec.model_validate(runtime)
    )
    cluster.settle()
    cluster.make_ready(cluster.target)
    cluster.settle()
    return cluster


def upgraded(name: str) -> FakeCluster:
    """What the landed operator left: its record, its Deployment, and a status that names the revision."""
    found = copy.deepcopy(LANDED[name])
    cluster = serving(found["spec"], found["runtime"])
    old = found["record"]["metadata"]["labels"]["llmendpoint.io/revision"]
    cluster.objects = {
        (item["kind"], item["metadata"]["name"]): item for item in (found["record"], found["deployment"])
    }
    cluster.pods, cluster.status, cluster.version = {}, {"activeRevision": old}, cluster.version + 1
    cluster.run_deployments()
    cluster.make_ready(old)
    return cluster


def templates(cluster: FakeCluster) -> dict[str, Any]:
    """What the pods of each revision look like."""
    return {r: copy.deepcopy(d["spec"]["template"]) for r, d in cluster.by_revision("Deployment").items()}


@pytest.mark.parametrize("name", LANDED)
def test_an_upgrade_from_the_landed_version_restarts_no_pod(name: str) -> None:
    cluster = upgraded(name)
    before, record = templates(cluster), copy.deepcopy(cluster.by_revision("ControllerRevision"))
    cluster.settle()
    assert templates(cluster) == before
    assert cluster.by_revision("ControllerRevision") == record
    assert cluster.target == cluster.active == next(iter(before))


@pytest.mark.parametrize("name", LANDED)
def test_an_upgrade_takes_nothing_away_that_somebody_had_added_to_pods(name: str) -> None:
    """The operator before let sidecars and volumes be; to take them away would restart the pods."""
    cluster = upgraded(name)
    [deployment] = cluster.by_revision("Deployment").values()
    pod = deployment["spec"]["template"]["spec"]
    pod["containers"].append({"name": "mesh", "image": "mesh:1"})
    pod["volumes"].append({"name": "certificates", "emptyDir": {}})
    pod["securityContext"]["fsGroup"] = 2000
    pod["containers"][0]["volumeMounts"].append({"name": "certificates", "mountPath": "/certificates"})
    before = templates(cluster)
    cluster.settle()
    assert templates(cluster) == before


def test_nobody_adds_a_container_to_pods_of_this_version() -> None:
    cluster = serving({"model": {"source": "embedded://demo"}}, {"image": "engine:1"})
    before = templates(cluster)
    [deployment] = cluster.by_revision("Deployment").values()
    deployment["spec"]["template"]["spec"]["containers"].append({"name": "mesh", "image": "mesh:1"})
    cluster.settle()
    assert templates(cluster) == before


@pytest.mark.parametrize("name", LANDED)
def test_what_the_landed_version_called_a_spec_is_known(name: str) -> None:
    found = LANDED[name]
    spec = LLMEndpointSpec.model_validate(found["spec"])
    assert legacy_hash(spec) == found["record"]["metadata"]["labels"]["llmendpoint.io/revision"]


def test_an_undo_of_before_an_upgrade_holds() -> None:
    cluster = upgraded("minimal")
    old = str(cluster.status["activeRevision"])
    wanted = make_spec(engine={"maxNumSeqs": 5})
    cluster.edit(wanted)
    cluster.status |= {"override": {"inputs": legacy_hash(wanted), "revision": old}}
    cluster.settle()
    assert cluster.target == old
    assert cluster.status["override"]["revision"] == old


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Models that an annotation holds."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in typing.get_args(annotation):
        yield from models(part)


def fields(cls: type[BaseModel], at: str = "") -> Iterator[tuple[str, type[BaseModel], str]]:
    """Every field with a default: its path, its model and its name."""
    for name, field in cls.model_fields.items():
        path = at + str(field.alias)
        if not field.is_required():
            yield path, cls, name
        listed = "[]" if str(field.annotation).startswith("tuple[") else ""
        for inner in models(field.annotation):
            yield from fields(inner, f"{path}{listed}.")


EVERY = [*fields(PodInputs), *fields(LLMRuntimeSpec)]


def test_the_meaning_of_every_field_that_a_record_may_lack_is_written_down() -> None:
    assert {path for path, _, _ in fields(PodInputs)} == set(INPUTS), "see core/pods/defaults.py"
    assert {path for path, _, _ in fields(LLMRuntimeSpec)} <= set(RUNTIME), "see core/pods/defaults.py"


def flipped(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, Enum):
        return next(member for member in type(value) if member is not value)
    if isinstance(value, int):
        return value + 7
    if isinstance(value, BaseModel):
        return value
    return (
        {None: None, "": "flipped", "llmendpoint": "other", "Equal": "Exists"}.get(value, value)
        if not isinstance(value, tuple)
        else value
    )


@pytest.fixture
def other_defaults() -> Iterator[list[str]]:
    """An operator whose API has another default in every field that can have one; the paths of those."""
    kept = [(cls, name, cls.model_fields[name].default) for _, cls, name in EVERY]
    classes = dict.fromkeys(cls for _, cls, _ in EVERY)
    changed = []

    def rebuild() -> None:
        for cls in reversed(classes):
            cls.model_rebuild(force=True)
        for cls in (PodInputs, LLMEndpointSpec, LLMRuntimeSpec):
            cls.model_rebuild(force=True)

    for path, cls, name in EVERY:
        field = cls.model_fields[name]
        if flipped(field.default) != field.default:
            field.default = flipped(field.default)
            changed.append(path)
            if cls is PodInputs:
                LLMEndpointSpec.model_fields[name].default = field.default
    rebuild()
    yield changed
    for cls, name, default in kept:
        cls.model_fields[name].default = default
        if cls is PodInputs:
            LLMEndpointSpec.model_fields[name].default = default
    rebuild()


@pytest.mark.parametrize("name", LANDED)
@pytest.mark.parametrize("stored", ["as written", "with defaults"])
def test_no_default_that_a_release_changes_restarts_a_pod(
    name: str, stored: str, request: pytest.FixtureRequest
) -> None:
    """Of records by today's operator and by the landed one, and of specs as users wrote them and as the API server
    stores them, with the defaults of their time."""
    manifest = copy.deepcopy(LANDED[name]["spec"])
    before = LLMEndpointSpec.model_validate(manifest | QUIET)
    if stored == "with defaults":
        manifest |= without_nulls(full_inputs(before))
        before = LLMEndpointSpec.model_validate(manifest | QUIET)
    clusters = [serving(manifest, LANDED[name]["runtime"]), upgraded(name)]
    for cluster in clusters:
        cluster.spec = before
        cluster.settle()
    made = [templates(cluster) for cluster in clusters]

    changed = request.getfixturevalue("other_defaults")
    assert {"engine.dtype", "engine.prefixCaching", "terminationGracePeriodSeconds"} < set(changed)
    for cluster, pods in zip(clusters, made, strict=True):
        cluster.spec = LLMEndpointSpec.model_validate(manifest | QUIET)
        cluster.settle()
        assert templates(cluster) == pods
        assert cluster.target == cluster.active


def without_nulls(value: Any) -> Any:
    """As the API server stores it."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "edit",
    [
        {"progressDeadlineSeconds": 1800},
        {"access": {"namespaces": ["team-b"]}},
        {"model": {"source": "embedded://demo", "servedNames": ["b", "a"]}},
        {"engine": {"device": "auto", "prefixCaching": True}},
    ],
)
def test_what_is_no_part_of_a_pod_makes_no_new_revision(edit: dict[str, Any]) -> None:
    spec = {"model": {"source": "embedded://demo", "servedNames": ["a", "b"]}}
    cluster = serving(spec, {"image": "engine:1"})
    before = templates(cluster)
    cluster.edit(LLMEndpointSpec.model_validate(spec | edit | QUIET))
    cluster.settle()
    assert templates(cluster) == before
    [deployment] = cluster.by_revision("Deployment").values()
    assert deployment["spec"]["progressDeadlineSeconds"] == edit.get("progressDeadlineSeconds", 600)


def test_a_longer_deadline_helps_the_rollout_that_is_going_on() -> None:
    cluster = serving({"model": {"source": "embedded://demo"}}, {"image": "engine:1"})
    fields = {"engine": {"maxNumSeqs": 2}, **QUIET}
    cluster.edit(make_spec(**fields))
    cluster.settle()
    started = cluster.status["rollout"]["startedAt"]
    cluster.edit(make_spec(progressDeadlineSeconds=3600, **fields))
    cluster.settle()
    cluster.settle(NOW + timedelta(seconds=900))
    assert cluster.status["rollout"]["startedAt"] == started
    assert "rejected" not in cluster.status


def test_what_is_written_is_asked_for_and_what_is_taken_back_is_not() -> None:
    cluster = serving(
        {"model": {"source": "embedded://demo"}, "engine": {"dtype": "float16"}}, {"image": "e"}
    )
    [record] = cluster.by_revision("ControllerRevision").values()
    revision = parse_revision(record)
    assert revision is not None
    assert agrees(make_spec(engine={"dtype": "float16", "device": "auto"}), revision)
    assert not agrees(make_spec(), revision)
    assert not agrees(make_spec(engine={"dtype": "float16", "maxNumSeqs": 1}), revision)
    assert not agrees(make_spec(engine={"dtype": "float16"}, runtime={"args": ["--x"]}), revision)


def test_a_restart_is_no_reason_to_restart_again_after_an_upgrade() -> None:
    cluster = serving({"model": {"source": "embedded://demo"}}, {"image": "e"})
    cluster.request = Request("r-1", "restart")
    cluster.settle()
    restarted = cluster.target
    cluster.make_ready(restarted)
    cluster.settle()
    assert cluster.active == restarted != current_hash(cluster.spec, cluster.snapshot().revisions)
    cluster.status["override"]["inputs"] = legacy_hash(cluster.spec)
    assert not any(isinstance(step, Apply) for step in cluster.plan().steps)
