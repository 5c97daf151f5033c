"""docs/concepts/architecture.md: edits of a child by others are put back, and a steady state writes nothing."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.api import PodInputs
from llmendpoint_operator.api.autoscaling import AutoscalingSpec
from llmendpoint_operator.core.pods.builders import make_service
from llmendpoint_operator.core.pods.deployment import make_deployment
from llmendpoint_operator.core.pods.drift import first_difference, make_change, quantity, with_additions
from llmendpoint_operator.core.pods.manifests import Owner
from llmendpoint_operator.core.pods.revision import Revision
from llmendpoint_operator.core.scaling.providers import make_autoscaler
from tests.merge_patch import merged

from .test_builders import BUNDLED, MINIMAL


@pytest.mark.parametrize(
    ("wanted", "live", "path"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, None),
        ({"a": {"b": 1}}, {"a": {}}, "a.b"),
        ({"a": {}}, {}, "a"),
        ({"a": True}, {"a": 1}, "a"),
        ({"args": ["x", "y"]}, {"args": ["x", "y"]}, None),
        ({"args": ["x"]}, {"args": ["x", "y"]}, "args"),
        ({"args": []}, {}, None),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "B"}, {"name": "A", "value": "1"}]}, None),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "A", "value": "2"}]}, "env[name=A].value"),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "B", "value": "1"}]}, "env[name=A]"),
        (
            {"ports": [{"port": 80, "name": "http"}]},
            {"ports": [{"port": 80, "name": "x"}]},
            "ports[port=80].name",
        ),
        ({"limits": {"cpu": "0.5", "memory": "1024Mi"}}, {"limits": {"cpu": "500m", "memory": "1Gi"}}, None),
        ({"limits": {"nvidia.com/gpu": "1"}}, {"limits": {"nvidia.com/gpu": "2"}}, "limits.nvidia.com/gpu"),
        ({"value": "0.5"}, {"value": "500m"}, "value"),
        ({"emptyDir": {"sizeLimit": "1024Mi"}}, {"emptyDir": {"sizeLimit": "1Gi"}}, None),
        ({"claim": {"readOnly": False}}, {"claim": {}}, None),
        ({"claim": {"readOnly": False}}, {"claim": {"readOnly": True}}, "claim.readOnly"),
        (
            {"containers": [{"name": "a"}]},
            {"containers": [{"name": "a"}, {"name": "b"}]},
            "containers[name=b]",
        ),
        ({"spec": {"volumes": []}}, {"spec": {"volumes": [{"name": "host"}]}}, "spec.volumes[name=host]"),
        ({"spec": {"a": 1}}, {"spec": {"a": 1, "hostNetwork": True}}, "spec.hostNetwork"),
        ({"spec": {"a": 1}}, {"spec": {"a": 1, "hostPID": False}}, None),
        ({"spec": {"a": 1}}, {"spec": {"a": 1, "initContainers": [{"name": "x"}]}}, "spec.initContainers"),
        ({"selector": {"a": "1"}}, {"selector": {"a": "1", "b": "2"}}, "selector.b"),
        (
            {"securityContext": {"runAsNonRoot": True}},
            {"securityContext": {"runAsNonRoot": True, "privileged": True}},
            "securityContext.privileged",
        ),
        ({"ports": [{"port": 80}]}, {"ports": [{"port": 80}, {"port": 22}]}, "ports[port=22]"),
        ({"env": [{"name": "A"}]}, {"env": [{"name": "A"}, {"name": "HTTP_PROXY"}]}, None),
    ],
)
def test_the_first_wanted_field_that_differs_is_named(wanted: Any, live: Any, path: str | None) -> None:
    assert first_difference(wanted, live) == path


def test_an_absent_object_differs() -> None:
    assert first_difference({"a": 1}, None) is not None


OWNER = Owner("team-a", "chat", "uid-1")
REVISION = Revision("7d9f8c6b54", 1, 1, PodInputs.model_validate(MINIMAL), BUNDLED)
HOST = {"name": "root", "hostPath": {"path": "/"}}
TAMPERED: dict[str, Any] = {
    "a container": ("containers", lambda pod: [*pod["containers"], {"name": "miner", "image": "x"}]),
    "an init container": ("initContainers", lambda _: [{"name": "first", "image": "x"}]),
    "a volume of the host": ("volumes", lambda pod: [*pod["volumes"], HOST]),
    "the host's network": ("hostNetwork", lambda _: True),
    "the host's processes": ("hostPID", lambda _: True),
    "the host's memory": ("hostIPC", lambda _: True),
    "another account": ("serviceAccountName", lambda _: "admin"),
    "a mount": ("containers", lambda pod: [{**pod["containers"][0], "volumeMounts": [*pod["containers"][0]["volumeMounts"], {"name": "tmp", "mountPath": "/x"}]}]),
    "privileges": ("containers", lambda pod: [{**pod["containers"][0], "securityContext": {**pod["containers"][0]["securityContext"], "privileged": True}}]),
    "the group of root": ("securityContext", lambda pod: {**pod["securityContext"], "supplementalGroups": [1]}),
}  # fmt: skip


@pytest.mark.parametrize(("field", "change"), TAMPERED.values(), ids=TAMPERED)
def test_what_nobody_may_add_to_a_pod_is_found_and_taken_away(field: str, change: Any) -> None:
    wanted = make_deployment(OWNER, REVISION, 1)
    live = copy.deepcopy(wanted)
    live["metadata"]["uid"] = "uid-2"
    pod = live["spec"]["template"]["spec"]
    pod[field] = change(pod)
    assert field in str(first_difference(wanted, live))
    patch = make_change(wanted, live)
    assert patch is not None
    assert patch["metadata"] == {"uid": "uid-2"}
    assert first_difference(wanted, merged(live, patch)) is None


@pytest.mark.parametrize(
    ("field", "change"),
    [pytest.param(*what, id=name) for name, what in TAMPERED.items() if name != "another account"],
)
def test_what_was_added_to_a_pod_can_be_kept(field: str, change: Any) -> None:
    """Scaling such a Deployment leaves its pods as they are, and a change of them keeps what was added."""
    wanted = make_deployment(OWNER, REVISION, 2)
    live = copy.deepcopy(make_deployment(OWNER, REVISION, 1))
    live["metadata"]["uid"] = "uid-2"
    pod = live["spec"]["template"]["spec"]
    pod[field] = change(pod)
    kept = with_additions(wanted, live)
    assert make_change(kept, live) == {"metadata": {"uid": "uid-2"}, "spec": {"replicas": 2}}
    assert make_deployment(OWNER, REVISION, 2) == wanted, "what is wanted is not changed itself"
    before = copy.deepcopy(live)
    pod["containers"][0]["image"] = "evil:1"
    patch = make_change(with_additions(wanted, live), live)
    before["spec"]["replicas"] = 2
    assert merged(live, patch) == before


def test_a_change_leaves_what_others_may_add() -> None:
    wanted = make_service(OWNER, "r2")
    live = copy.deepcopy(make_service(OWNER, "r1"))
    live["metadata"] |= {"uid": "uid-2", "annotations": {"theirs": "1"}}
    live["metadata"]["ownerReferences"].append({"uid": "x", "kind": "Backup"})
    live["spec"] |= {"clusterIP": "10.0.0.1", "type": "ClusterIP"}
    patch = make_change(wanted, live)
    assert patch == {
        "metadata": {"uid": "uid-2"}, "spec": {"selector": {"llmendpoint.io/revision": "r2"}}
    }  # fmt: skip
    assert make_change(wanted, merged(live, patch)) is None


def test_a_peer_that_is_to_lose_a_selector_is_a_change() -> None:
    wide, narrow = {"namespaceSelector": {}}, {"namespaceSelector": {}, "podSelector": {}}
    wanted, live = (
        {"kind": "NetworkPolicy", "spec": {"ingress": [{"from": [peer]}]}} for peer in (wide, narrow)
    )
    live["metadata"] = {"uid": "uid-2"}
    patch = make_change(wanted, live)
    assert patch is not None
    assert merged(live, patch)["spec"] == wanted["spec"]


def test_what_an_autoscaler_is_no_longer_to_have_is_taken_away() -> None:
    def spec(**more: Any) -> AutoscalingSpec:
        fields = {"provider": "hpa", "maxReplicas": 2, "signals": {"queueDepth": {"target": 4}}}
        return AutoscalingSpec.model_validate({**fields, **more})

    slow = {"scaleDown": {"stabilizationWindowSeconds": 900}}
    live = copy.deepcopy(make_autoscaler(OWNER, spec(behavior=slow)))
    live["metadata"]["uid"] = "uid-2"
    wanted = make_autoscaler(OWNER, spec())
    patch = make_change(wanted, live)
    assert patch is not None
    assert merged(live, patch)["spec"] == wanted["spec"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab1m", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "limits"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(JSON)
def test_a_thing_does_not_differ_from_itself(thing: Any) -> None:
    assert first_difference({"x": thing}, {"x": thing}) is None


@given(
    st.dictionaries(st.sampled_from("abcd"), JSON.filter(lambda v: v == {} or bool(v)), min_size=1),
    st.data(),
)
def test_a_missing_field_is_found(wanted: dict[str, Any], data: st.DataObject) -> None:
    live = dict(wanted)
    gone = data.draw(st.sampled_from(sorted(live)))
    del live[gone]
    assert str(first_difference(wanted, live)).startswith(gone)


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1), ("500m", 0.5), ("2Gi", 2 * 2**30), ("1.5k", 1500), ("x", None), ("1Q", None)],
)
def test_quantities_are_read(text: str, number: float | None) -> None:
    found = quantity(text)
    assert (found if found is None else float(found)) == number
