"""docs/contribute/contracts.md: each change of a spec is told once, by whom and what, and no value that may be a secret is told."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
import structlog.testing

from llmendpoint_operator.api import LLMEndpointSpec
from llmendpoint_operator.core.endpoint.audit import Change, changed_values, find_change, last_writer
from llmendpoint_operator.core.endpoint.snapshot import Endpoint, Snapshot
from llmendpoint_operator.core.endpoint.steps import Event
from llmendpoint_operator.core.pods.revision import Revision
from llmendpoint_operator.kube.events import EventWriter
from llmendpoint_operator.kube.trimming import trim
from llmendpoint_operator.observe.endpoint.audit import Auditor

from ..fake_cluster import RUNTIME, make_spec

MANAGERS = [
    {"manager": "kubectl-client-side-apply", "operation": "Update", "time": "2026-01-01T00:00:00Z"},
    {"manager": "argocd-controller", "operation": "Apply", "time": "2026-01-01T10:00:00Z"},
    {
        "manager": "llmendpoint-operator",
        "operation": "Apply",
        "time": "2026-01-01T11:00:00Z",
        "subresource": "status",
    },
]


def manifest(generation: int = 2, **spec: Any) -> dict[str, Any]:
    metadata = {
        "namespace": "team-a",
        "name": "chat",
        "uid": "uid-1",
        "generation": generation,
        "managedFields": MANAGERS,
    }
    return {
        "kind": "LLMEndpoint",
        "metadata": metadata,
        "spec": {"model": {"source": "embedded://demo"}, **spec},
    }


def snapshot(found: dict[str, Any], status: dict[str, Any], **known: Any) -> Snapshot:
    spec = LLMEndpointSpec.model_validate(found["spec"])
    generation = found["metadata"]["generation"]
    return Snapshot(
        Endpoint("team-a", "chat", "uid-1", generation, "1", False, spec, status=status), RUNTIME, **known
    )


def change(found: dict[str, Any], before: dict[str, Any] | None, **known: Any) -> Change:
    status = {"observedGeneration": 1, "targetRevision": "old"}
    result = find_change(snapshot(found, status, **known), found, {"targetRevision": "new"}, before)
    assert result is not None
    return result


def test_a_change_names_manager_time_fields_revision_model_and_accelerator() -> None:
    resources = {"accelerator": {"kind": "nvidia.com/gpu", "count": 2}}
    found = manifest(engine={"maxNumSeqs": 4}, replicas=3, resources=resources)
    before = manifest(replicas=2, resources=resources)
    assert change(found, before).event().message == (
        "generation 2: argocd-controller (Apply) changed engine, replicas (2 -> 3) at 2026-01-01T10:00:00Z; revision new, "
        "model embedded://demo, accelerator 2 x nvidia.com/gpu"
    )


def test_old_and_new_value_of_a_field_are_told_in_a_few_characters() -> None:
    before = manifest(engine={"maxNumSeqs": 2, "prefixCaching": True}, model={"source": "hf://a/b"})
    found = manifest(
        engine={"maxNumSeqs": 4, "prefixCaching": False},
        model={"source": "hf://" + "x" * 60 + "/y"},
        replicas=2,
    )
    said = change(found, before).event().message
    assert "engine.maxNumSeqs (2 -> 4), engine.prefixCaching (true -> false)" in said
    assert "replicas (unset -> 2)" in said
    assert f"model.source (hf://a/b -> hf://{'x' * 42}…)" in said
    assert "2 -> 4" not in str(change(found, before).as_log())


HIDDEN = {
    "runtime": ({"args": ["--key=s3cret"]}, {"args": ["--key=s3cret", "x"]}),
    "model": ({"source": "s3://m/x", "credentials": {"secretName": "s3cret-a"}}, {"source": "s3://m/x", "credentials": {"secretName": "s3cret-b"}}),
    "rollout": (
        {"verification": {"prompts": [{"name": "a", "prompt": "s3cret 1", "expect": {"contains": ["s3cret"]}}]}},
        {"verification": {"prompts": [{"name": "a", "prompt": "s3cret 2", "expect": {"contains": ["s3cret"]}}]}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("part", HIDDEN)
def test_values_that_may_be_secrets_are_never_told(part: str) -> None:
    old, new = HIDDEN[part]
    said = change(manifest(**{part: new}), manifest(**{part: old})).event().message
    assert part in said
    assert "s3cret" not in said.replace("model s3cret", "")


def test_the_model_is_told_as_it_was_resolved() -> None:
    record = {"data": {"inputs": {"model": {"source": "hf://org/name@main"}}, "modelCommit": "0123abcd"}}
    assert change(manifest(), manifest(), records={"new": record}).model == "hf://org/name@0123abcd"


SCALED = {"manager": "keda", "operation": "Update", "subresource": "scale"}
"""The API server puts no time on who scaled."""


def test_a_scale_is_told_by_who_scaled() -> None:
    assert last_writer([*MANAGERS, SCALED], MANAGERS)["manager"] == "keda"
    assert last_writer(MANAGERS)["manager"] == "argocd-controller"


def test_who_scales_again_is_told_again() -> None:
    known = [*MANAGERS, SCALED]
    assert last_writer(known, known, ("replicas",))["manager"] == "keda"
    assert last_writer(known, known, ("engine.maxNumSeqs",))["manager"] == "argocd-controller"


def test_a_spec_that_was_taken_up_before_is_not_told_again() -> None:
    found = manifest()
    assert find_change(snapshot(found, {"observedGeneration": 2}), found, {}, None) is None


def test_after_a_restart_fields_are_told_from_the_revision_before() -> None:
    old = Revision("old", 1, 1, make_spec(engine={"maxNumSeqs": 2}), RUNTIME)
    found = manifest(engine={"maxNumSeqs": 4})
    assert change(found, None, revisions={"old": old}).fields == ("engine.maxNumSeqs",)
    assert "unknown fields" in change(found, None).event().message


def test_a_new_endpoint_is_told_as_created() -> None:
    found = manifest(generation=1)
    made = find_change(snapshot(found, {}), found, {"targetRevision": "new"}, None)
    assert made is not None
    assert "(Apply) created at" in made.event().message


@pytest.mark.parametrize(
    ("old", "new", "paths"),
    [
        ({"replicas": 1}, {"replicas": 2}, ["replicas"]),
        ({"a": {"b": 1, "c": 1}}, {"a": {"b": 2, "c": 1}}, ["a.b"]),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "A", "value": "2"}]}, ["env[A].value"]),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": []}, ["env[A]"]),
        ({}, {"env": [{"name": "A", "value": "1"}]}, ["env[A]"]),
        ({"args": ["--x"]}, {"args": ["--y"]}, ["args"]),
        ({"args": ["--x"]}, {"args": ["--x"]}, []),
        ({"a": 1}, {}, ["a"]),
    ],
)  # fmt: skip
def test_paths_are_those_of_the_fields_that_differ(
    old: dict[str, Any], new: dict[str, Any], paths: list[str]
) -> None:
    assert [path for path, _, _ in changed_values(old, new)] == paths


class Heard:
    """Takes Events in place of the API server."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def write(self, _: Endpoint, event: Event) -> None:
        self.events.append(event)


def test_no_value_of_a_spec_reaches_the_log_or_an_event() -> None:
    heard = Heard()
    auditor = Auditor(cast(EventWriter, heard))
    before = manifest(
        1, runtime={"env": [{"name": "TOKEN", "value": "s3cret-1"}], "args": ["--key=s3cret-2"]}
    )
    auditor.look({**before, "status": {"observedGeneration": 1}})
    after = manifest(2, runtime={"env": [{"name": "TOKEN", "value": "s3cret-3"}], "args": ["--key=s3cret-4"]})
    with structlog.testing.capture_logs() as logs:
        status = {"observedGeneration": 1}
        auditor.taken_up(snapshot(after, status), after, {"targetRevision": "new"})
    assert logs[0]["fields"] == ["runtime.args", "runtime.env[TOKEN].value"]
    assert "s3cret" not in json.dumps(logs) + repr(heard.events)


def test_the_auditor_tells_each_generation_once() -> None:
    heard = Heard()
    auditor = Auditor(cast(EventWriter, heard))
    first, second = manifest(1), manifest(2, replicas=2)
    auditor.look({**first, "status": {"observedGeneration": 1}})
    auditor.taken_up(snapshot(second, {"observedGeneration": 1}), second, {"observedGeneration": 2})
    auditor.taken_up(snapshot(second, {"observedGeneration": 2}), second, {"observedGeneration": 2})
    assert ["replicas" in event.message for event in heard.events] == [True]


def test_a_change_that_would_cut_allowed_generations_is_warned_of_once() -> None:
    heard = Heard()
    auditor = Auditor(cast(EventWriter, heard))
    found = manifest(2, engine={"maxModelLen": 8192}, terminationGracePeriodSeconds=30)
    for observed in (1, 2):
        auditor.taken_up(snapshot(found, {"observedGeneration": observed}), found, {"observedGeneration": 2})
    assert [event.reason for event in heard.events] == ["SpecChanged", "GraceTooShort"]


def test_the_cache_keeps_who_manages_an_endpoint_and_not_the_long_list_of_fields() -> None:
    entry = {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}}
    found = {"kind": "LLMEndpoint", "metadata": {"name": "chat", "managedFields": [entry]}}
    assert trim(found)["metadata"]["managedFields"] == [{"manager": "kubectl", "operation": "Update"}]
    assert "managedFields" not in trim({**found, "kind": "Deployment"})["metadata"]
